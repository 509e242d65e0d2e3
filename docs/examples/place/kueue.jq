# From the list of models.jq: a patch that lets a Job for Kueue run only on flavors of these models. They are
# told apart by the node label of NVIDIA's GPU feature discovery, which writes "-" for a space.
if length == 0 then {} else
  {spec: {template: {spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: "nvidia.com/gpu.product", operator: "In", values: map(gsub(" "; "-"))}]}]}}}}}}}
end

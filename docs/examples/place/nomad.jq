# From `trimtab place --json`: a Nomad task's Resources.Devices. Faster models weigh more; none that can be used is excluded.
[ .jobs[0] | (.choices + (.elsewhere // []))[] | select(.rate.perSecond and .model and (.unfit | not)) | {model, rate: .rate.perSecond} ]
| unique_by(.model) | (map(.rate) | max) as $best
| [{Name: "nvidia/gpu", Count: 1, Affinities: map({LTarget: "${device.model}", Operand: "=", RTarget: .model, Weight: ([1, (100 * .rate / $best | round)] | max)})}]

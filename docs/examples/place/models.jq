# From `trimtab place --json`: the models of device on which the job is as fast as on the best, as far as is
# known. Those are the ones whose interval reaches into the best's. What the job cannot use here is none of them.
# None known: an empty list.
[ .jobs[0] | (.choices + (.elsewhere // []))[] | select(.rate.perSecond and .model and (.unfit | not))
  | {model, low: (.rate.low // .rate.perSecond), high: (.rate.high // .rate.perSecond)} ]
| (map(.low) | max) as $best
| map(select(.high >= $best) | .model) | unique

package render

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/advice"
	"github.com/trimtab/trimtab/tuner/state"
)

// similar tells which known job a container is most like, and what was taken over.
func similar(c state.Container) string {
	like := c.Similar
	if like == nil {
		return ""
	}
	s := section{title: fmt.Sprintf("Known jobs like it: %s, distance %s, confidence %s", name(like.Name), number(like.Distance), percent(like.Confidence))}
	s.line("containers this rests on", strconv.Itoa(like.Jobs))
	s.line("compared of what is known", percent(like.Compared))
	if c.Bursts == 0 { // else a mean tells no knee
		s.line("no more speed for them beyond", cpus(like.Knee)+" CPUs")
	}
	s.line("taken over from them", cmp.Or(Clean(strings.Join(like.Taken, "; ")), "nothing"))
	return s.String()
}

// lastRuns tells what is known of a container from earlier runs of the same job.
func lastRuns(c state.Container) string {
	r := c.LastRuns
	if r == nil || r.Runs == 0 {
		return ""
	}
	s := section{title: fmt.Sprintf("Known since its start: the same job ran before (profile %d)", r.Entry)}
	s.line("runs remembered", strconv.Itoa(r.Runs))
	if r.CPUs > 0 {
		s.line("CPUs that were enough", cpus(r.CPUs))
	}
	if r.Memory > 0 {
		s.line("memory that was enough", short(runtime.IntValue(int64(r.Memory))))
	}
	if r.PerSecond > 0 {
		text := perSecond(r.PerSecond, policies.Rate{}) + " (" + r.Source + ")"
		if r.Low > 0 {
			text += fmt.Sprintf(", between %s and %s", number(r.Low), number(r.High))
		}
		s.line("expected rate", Clean(text))
	}
	s.line("given at its start", Clean(strings.Join(r.Took, "; ")))
	s.line("nothing is taken from them, since", Clean(r.Doubt))
	if r.Slower > 0 {
		s.line("slower than usual", Clean(r.SlowerWhy))
	}
	return s.String()
}

// devices tells the predicted speed on the node's other devices, with its bounds. Advice only.
func devices(c state.Container) string {
	s := section{title: "On other devices of this host, predicted from data sheets and known jobs; nine times in ten within the bounds (advice; never acted on)"}
	for _, d := range c.Devices {
		note := ""
		if d.HostBound {
			note = ", and its device is not what bounds it: nothing to gain there"
		}
		bounds := ""
		if low, high, ok := d.Ratios(); ok {
			bounds = fmt.Sprintf(" (%s … %s)", signed(low-1), signed(high-1))
		}
		s.line(Clean(d.Model), fmt.Sprintf("%s, %s%s, %s%s", perSecond(d.PerSecond, c.Rate), signed(d.Ratio-1), bounds, restsOn(d.Jobs), note))
	}
	if best, ok := advice.BestDevice(c); ok {
		s.say("it should see %s next", Clean(best.Model))
	}
	return s.String()
}

// gpuErrors tells what the driver reported of GPUs while the container held them.
func gpuErrors(c state.Container, clock Clock) string {
	s := section{title: "Errors of its GPUs, as their driver reported them (told, never acted on)"}
	for _, e := range c.GPUErrors {
		s.say("%-16s %s", clock.at(e.UnixNs), Clean(e.Text))
	}
	return s.String()
}

// restsOn tells what a prediction rests on.
func restsOn(jobs int) string {
	switch jobs {
	case 0:
		return "by data sheets alone"
	case 1:
		return "by 1 job that ran on both"
	}
	return "by " + strconv.Itoa(jobs) + " jobs that ran on both"
}

// Fingerprints is the table of `trimtab profiles ls`.
func Fingerprints(all []state.Fingerprint, clock Clock) string {
	if len(all) == 0 {
		return "no job is known yet\n"
	}
	columns := []column{{"NUMBER", 6, 6, false}, {"LAST MET AS", 30, 12, true}, {"FROM", 16, 4, false}, {"MET", 16, 5, false}, {"JOBS", 4, 4, false}, {"STEPS ARE", 24, 9, false},
		{"CPU/STEP", 9, 8, false}, {"KNEE", 5, 4, false}, {"TRIALS", 10, 6, false}, {"FIRST", 9, 5, false}, {"DEVICES", 30, 7, false}}
	var cells [][]string
	for _, k := range all {
		l := k.Learned
		number, from := strconv.FormatUint(k.ID, 10), "own"
		if k.Host != "" { // its number is long, and its name is one of a kind
			number, from = "-", Clean(k.Host)
		}
		cells = append(cells, []string{number, name(k.Name), from, clock.at(k.LastUnixNs), strconv.Itoa(k.Jobs), cmp.Or(Clean(k.Print.Unit), "-"),
			milliseconds(l.Cost.CPU()), cpus(l.Cost.Knee()), fmt.Sprintf("%d of %d", l.Kept, l.Kept+l.Failed), fmt.Sprintf("%d of %d", l.Right, l.Right+l.Wrong), cmp.Or(each(k.Models(), Clean), "-")})
	}
	return table(columns, cells) + "\nTRIALS: kept, of those that such jobs went through. FIRST: kept, of the first allocations taken from it.\n"
}

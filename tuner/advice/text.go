package advice

import (
	"fmt"
	"strconv"
	"strings"
)

// String is an advice in one line, with its numbers and the first line to paste: as `advice` of
// GET /v1/containers has it.
func (a Advice) String() string {
	g := a.Gives
	what := fmt.Sprintf("%s %s, now %s", a.What, a.Advised, a.Current)
	if len(a.Paste) > 0 {
		what += fmt.Sprintf(" (%s)", a.Paste[0].Text)
	}
	return fmt.Sprintf("%s: %s. Gives %.0f %% (%.0f to %.0f %%) of %s, %.0f h a week; confidence %.0f %%", what, strings.TrimSuffix(a.Text, "."),
		100*g.Share, 100*g.Low, 100*g.High, g.whole(), g.Hours, 100*a.Confidence)
}

// whole is what the share is of.
func (g Gives) whole() string {
	return map[string]string{
		OfRunTime: "its run time", OfRisk: "its run time, which is at risk",
		OfDevices: "the time that it is held", OfCPUs: "that CPU to promise to others",
	}[g.Of]
}

// String shows a setting with its unit: 1.75 CPUs, 1536 MiB.
func (s Setting) String() string {
	switch s.Unit {
	case "":
		return s.Text
	case "B":
		return fmt.Sprintf("%.0f MiB", s.Value/mib)
	case "CPUs":
		return strings.TrimSuffix(fmt.Sprintf("%.2f", s.Value), "0") + " CPUs"
	}
	if s.Value == 1 {
		return "1 " + strings.TrimSuffix(s.Unit, "s")
	}
	return strconv.FormatFloat(s.Value, 'f', -1, 64) + " " + s.Unit
}

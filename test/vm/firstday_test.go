package vm

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/tuner/state"
)

const (
	firstDayPage = "../../docs/first-day.md"
	// envPage, set to "update", has TestMachineFirstDay write what the commands print into the page.
	envPage = "TRIMTAB_FIRST_DAY"
	// shownLines and shownWide are how much of an answer the page shows.
	shownLines, shownWide = 28, 130
	trainQuota            = "15000 100000"
	ownCPU                = `(?m)^own CPU +[0-9]` // not: not measured yet
)

// answer is what must hold of one command of the page, beside its success.
type answer struct {
	ready func(*testing.T, *machine) // is waited for before it is asked
	codes []int                      // exit statuses that are right; nil: 0
	wants []string                   // expressions that fit what it prints, line by line
	not   []string                   // and that do not
	then  func(*testing.T, *machine) // what must hold afterwards
	quiet bool                       // of others' programs, whose words are not shown
}

// TestMachineFirstDay walks docs/first-day.md, in order, in a guest of its own.
func TestMachineFirstDay(t *testing.T) {
	text, err := os.ReadFile(firstDayPage)
	if err != nil {
		t.Fatal(err)
	}
	m := start(t, v2)
	aHost(t, m)
	m.sh(t, `ln -s /opt/vm/trimtab-`+version+`.deb /root/trimtab_`+version+`_amd64.deb; ln -s /opt/vm/trimtab-`+newer+`.deb /root/trimtab_`+newer+`_amd64.deb
mkdir -p /etc/trimtab/conf.d; echo '{limits: {coolDown: 5s}, overhead: {cpu: 1, perContainer: 0.1}}' >/etc/trimtab/conf.d/emulated.yaml
docker run -d --name train --network none --label trimtab.cpu.max=0.3 --cpus 0.15 job-image trainer --kernels 4 --kernel-us 15000 --sync blocking --loader-threads 2 --loader-ms 25
docker run -d --name web --network none job-image sleep 100000`)
	answers := firstDay()
	met := map[string]int{}
	page := answered(string(text), func(command string) string {
		n := met[command]
		met[command]++
		as := answers[command]
		if n >= len(as) {
			t.Fatalf("%s: %q is asked %d times, and what must hold of that is told %d times", firstDayPage, command, n+1, len(as))
		}
		return m.ask(t, command, as[n])
	})
	for command, as := range answers {
		if met[command] != len(as) {
			t.Errorf("%s asks %q %d times, and %d answers are told", firstDayPage, command, met[command], len(as))
		}
	}
	if os.Getenv(envPage) == "update" && !t.Failed() {
		if err := os.WriteFile(firstDayPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// answered is a page with another answer after each of its commands. An answer ends with the
// block, or where the next command comes.
func answered(page string, ask func(command string) string) string {
	const fence, prompt = "```", "$ "
	fenced := false
	var out strings.Builder
	lines := strings.SplitAfter(page, "\n")
	for i := 0; i < len(lines); i++ {
		out.WriteString(lines[i])
		if strings.HasPrefix(lines[i], fence) {
			fenced = !fenced
		}
		command, is := strings.CutPrefix(strings.TrimRight(lines[i], "\n"), prompt)
		if !fenced || !is {
			continue
		}
		out.WriteString(ask(command))
		last := i // of the answer that was there
		for j := i + 1; j < len(lines) && !strings.HasPrefix(lines[j], prompt) && !strings.HasPrefix(lines[j], fence); j++ {
			if lines[j] != "\n" {
				last = j
			}
		}
		i = last
	}
	return out.String()
}

// TestAnswered: what a page showed is replaced, and its text is not.
func TestAnswered(t *testing.T) {
	const page = "text\n\n```\n$ a\nold\n\nmore of it\n```\n\n$ text\n\n```\n$ b\n\n$ c\nx\n```\n"
	got := answered(page, func(command string) string { return "<" + command + ">\n" })
	if want := "text\n\n```\n$ a\n<a>\n```\n\n$ text\n\n```\n$ b\n<b>\n\n$ c\n<c>\n```\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// ask runs one command as the operator types it, and returns what the page shows of its answer.
func (m *machine) ask(t *testing.T, command string, a answer) string {
	t.Helper()
	if a.ready != nil {
		a.ready(t, m)
	}
	o := m.try(t, "cd /root\n"+command)
	if codes := a.codes; !slices.Contains(append(codes, 0), o.Code) {
		t.Fatalf("$ %s\nended with %d\n%s%s", command, o.Code, o.Stdout, o.Stderr)
	}
	out := o.Stdout + o.Stderr
	for _, want := range a.wants {
		if !regexp.MustCompile(`(?m)` + want).MatchString(out) {
			t.Errorf("$ %s\n%s\nfits not %s", command, out, want)
		}
	}
	for _, not := range a.not {
		if regexp.MustCompile(`(?m)` + not).MatchString(out) {
			t.Errorf("$ %s\n%s\nfits %s", command, out, not)
		}
	}
	if a.then != nil {
		a.then(t, m)
	}
	if a.quiet || out == "" {
		return ""
	}
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if len(lines) > shownLines {
		lines = append(lines[:shownLines:shownLines], "…")
	}
	var shown strings.Builder
	for _, line := range lines {
		if runes := []rune(line); len(runes) > shownWide {
			line = string(runes[:shownWide-1]) + "…"
		}
		shown.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return shown.String()
}

// firstDay is what must hold of each command, each time that it is asked.
func firstDay() map[string][]answer {
	inForce := `cat /sys/fs/cgroup/system.slice/docker-$(docker inspect -f '{{.Id}}' train).scope/cpu.max`
	known := func(t *testing.T, m *machine) {
		m.untilContainer(t, "train", "a verdict", func(c state.Container) bool { return c.Verdict.Class == "input" && c.Rate.PerSecond > 0 })
	}
	lent := func(t *testing.T, m *machine) { m.untilContainer(t, "train", "a settled loan", settled) }
	faster := func(t *testing.T, m *machine) {
		m.untilContainer(t, "train", "a gain that is measured", func(c state.Container) bool { return settled(c) && c.HasGain && c.Gain > 0.2 })
	}
	owners := func(t *testing.T, m *machine) { m.wantQuota(t, "train", trainQuota, "the owner's") }
	running := func(t *testing.T, m *machine) {
		until(t, "the service", func() (string, bool) {
			o := m.try(t, "systemctl is-active trimtab; trimtab status")
			return o.Stdout + o.Stderr, o.Code == 0
		})
	}
	measured := func(t *testing.T, m *machine) { // what it costs is known some ten seconds after its start
		until(t, "what trimtab uses", func() (string, bool) {
			o := m.try(t, "trimtab status")
			return o.Stdout + o.Stderr, regexp.MustCompile(ownCPU).MatchString(o.Stdout)
		})
	}
	return map[string][]answer{
		`mkdir -p /etc/trimtab/conf.d && printf 'mode: observe\nwatch: all\n' >/etc/trimtab/conf.d/site.yaml`: {{}},
		`apt-get install -y ./trimtab_` + version + `_amd64.deb`:                                              {{quiet: true, then: running}},
		`trimtab doctor`: {{codes: []int{1}, wants: []string{`^this host can be tuned`}}},
		`trimtab status`: {
			{ready: measured, wants: []string{version, `observe`, ownCPU}},
			{wants: []string{newer, `tune`, `1 changed`, ownCPU}, ready: func(t *testing.T, m *machine) {
				running(t, m)
				measured(t, m)
				m.untilContainer(t, "train", "the change is known to the new version", changed)
			}},
		},
		`trimtab ps`: {
			{ready: known, wants: []string{`^train .*observe.*throttled`, `^web `}, not: []string{`^train .*←`}},
			{ready: faster, wants: []string{`^train .*tune.*←`}},
			{wants: []string{`^train .*paused`}, not: []string{`^train .*←`}},
		},
		`trimtab explain train`: {
			{wants: []string{`stopped: out of CPU quota`, `input`}, not: []string{`since .* lent`}},
			{wants: []string{`lent`, `its own`}},
		},
		`trimtab history train`: {{ready: func(t *testing.T, m *machine) {
			until(t, "what it would do", func() (string, bool) {
				o := m.try(t, "trimtab history train")
				return o.Stdout, strings.Contains(o.Stdout, "would")
			})
		}, wants: []string{`would`}, then: owners}},
		`trimtab history --changed`: {{wants: []string{`no changes`}}},
		`printf 'mode: tune\nwatch: all\nmaxTuned: 1\n' >/etc/trimtab/conf.d/site.yaml && trimtab config check`: {{}},
		`systemctl reload trimtab`:                             {{}},
		`trimtab enable train --for 12h`:                       {{wants: []string{`enabled`}}},
		`trimtab history train --changed`:                      {{ready: lent, wants: []string{`lent +train`}}},
		`trimtab history --since 12h --changed`:                {{wants: []string{`lent +train`}, not: []string{`web`}}},
		`docker inspect -f '{{.HostConfig.NanoCpus}}' train`:   {{wants: []string{`^150000000$`}}},
		`trimtab pause`:                                        {{}},
		`trimtab restore train`:                                {{wants: []string{`train`}, then: owners}},
		inForce:                                                {{wants: []string{`^` + trainQuota + `$`}}, {wants: []string{`^` + trainQuota + `$`}}},
		`trimtab resume`:                                       {{then: lent}},
		`apt-get install -y ./trimtab_` + newer + `_amd64.deb`: {{quiet: true, then: running}},
		`apt-get purge -y trimtab`:                             {{quiet: true, then: owners}},
	}
}

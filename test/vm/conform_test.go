package vm

import (
	"regexp"
	"strings"
	"testing"
)

// conforms runs the engines' conformance suite in the guest: systemd's driver on
// cgroup v2. Each of its cases is one of ours.
func conforms(binary, test string) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) {
		o := m.try(t, "cd /tmp && /opt/vm/"+binary+".test -test.v -test.count=1 -test.timeout 8m -test.run '^"+test+"$' 2>&1")
		ended := regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+) \(`).FindAllStringSubmatch(o.Stdout, -1)
		cases := 0
		for i, e := range ended {
			if i+1 < len(ended) && strings.HasPrefix(ended[i+1][2], e[2]+"/") {
				continue // it has cases of its own
			}
			cases++
			t.Run(strings.TrimPrefix(e[2], test+"/"), func(t *testing.T) {
				switch e[1] {
				case "SKIP":
					t.Skip(said(o.Stdout, e[2]))
				case "FAIL":
					t.Error(said(o.Stdout, e[2]))
				}
			})
		}
		if cases == 0 || o.Code != 0 && !t.Failed() {
			t.Errorf("the suite ended with %d after %d cases\n%s%s", o.Code, cases, o.Stdout[max(0, len(o.Stdout)-3000):], o.Stderr)
		}
	}
}

// said is what a case printed before its outcome, without the names of files.
func said(output, name string) string {
	lines, mine := []string{}, false
	for line := range strings.Lines(output) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "=== "):
			mine = strings.HasSuffix(text, " "+name)
		case strings.HasPrefix(text, "--- "):
			mine = false
		case mine:
			lines = append(lines, regexp.MustCompile(`^\S+\.go:\d+: `).ReplaceAllString(text, ""))
		}
	}
	return strings.Join(lines, "\n")
}

package vm

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/tuner/event"
)

// receivers sets up, before trimtab is installed, whom it is to tell: a script of the host, and one
// listener on the loopback as webhook, collector and Grafana. The drop-in is that of docs/notify.md.
func receivers(t *testing.T, m *machine) {
	page, err := os.ReadFile("../../docs/notify.md")
	if err != nil {
		t.Fatal(err)
	}
	const dropIn = "[Service]\nReadWritePaths=/srv/events\n"
	if !strings.Contains(string(page), dropIn) {
		t.Errorf("docs/notify.md shows another drop-in than\n%s", dropIn)
	}
	m.sh(t, `mkdir -p /etc/trimtab/conf.d /etc/systemd/system/trimtab.service.d /usr/local/lib/vm /srv/events
cat >/etc/systemd/system/trimtab.service.d/notify.conf <<'END'
`+dropIn+`END
cat >/usr/local/lib/vm/on-event <<'END'
#!/bin/sh
cat >/srv/events/event.new
logger --tag vm-event </srv/events/event.new
{
	tr '\0' '\n' </proc/$$/environ
	pwd
	id -u
	grep -E '^(CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs):' /proc/self/status
	for dir in /srv/events /var/lib/trimtab /run/trimtab /tmp /etc /srv /usr/local/lib /var/log /home /root; do
		(: >$dir/vm-try) 2>/dev/null && rm $dir/vm-try && echo "writes $dir"
	done
	cat /proc/$$/oom_score_adj
} >/srv/events/run
mv /srv/events/event.new /srv/events/event
END
chmod 755 /usr/local/lib/vm/on-event
(umask 077; echo letmein >/etc/trimtab/hook.token)
cat >/etc/trimtab/conf.d/notify.yaml <<'END'
notify:
  script: {path: /usr/local/lib/vm/on-event, events: [lent]}
  webhook: {url: 'http://127.0.0.1:9999/hook', tokenFile: /etc/trimtab/hook.token, events: []}
  grafana: {url: 'http://127.0.0.1:9999/grafana', tokenFile: /etc/trimtab/hook.token}
  otlp: {url: 'http://127.0.0.1:9999/otlp', metricsEvery: 10s}
END
systemd-run --quiet --unit vm-hear /opt/vm/inside hear 9999 /run/vm-heard`)
}

// tellsOthers: the loan that the part before saw has reached everybody, from within the sandbox.
func tellsOthers(t *testing.T, m *machine) {
	missing := []string{"/hook", "/grafana/api/annotations", "/otlp/v1/logs", "/otlp/v1/metrics"}
	until(t, "the loan is heard of", func() (string, bool) {
		out := m.try(t, "cat /run/vm-heard").Stdout
		missing = slices.DeleteFunc(missing, func(path string) bool { return heardOf(t, out, path) })
		return strings.Join(missing, ", ") + " heard nothing; " + m.sh(t, "journalctl --no-pager -u trimtab -o cat | grep receiver= || true"), len(missing) == 0
	})
	until(t, "the script ends", func() (string, bool) {
		o := m.try(t, "cat /srv/events/event")
		return o.Stdout + o.Stderr, o.Code == 0
	})
	lentToJob(t, m.sh(t, "cat /srv/events/event"))
	lentToJob(t, m.sh(t, "journalctl --no-pager -t vm-event -o cat -n 1"))
	const want = `PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
/
0
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
writes /srv/events
writes /var/lib/trimtab
writes /run/trimtab
writes /tmp
1000`
	if got := m.sh(t, "cat /srv/events/run"); got != want {
		t.Errorf("the script ran with\n%s\nwant\n%s", got, want)
	}
	for _, r := range m.status(t).Daemon.Receivers {
		if !r.OK {
			t.Errorf("%s was not told: %s", r.Name, r.Lost)
		}
	}
	m.sh(t, "rm -r /etc/trimtab/conf.d/notify.yaml /etc/systemd/system/trimtab.service.d; systemctl daemon-reload") // the next start tells nobody
}

// heardOf says whether a path was sent what it was to be sent.
func heardOf(t *testing.T, lines, path string) bool {
	t.Helper()
	for line := range strings.Lines(lines) {
		if !strings.HasSuffix(line, "\n") {
			continue // it is being written
		}
		var h struct{ Path, Type, Authorization, Body string }
		if err := json.Unmarshal([]byte(line), &h); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if h.Path != path {
			continue
		}
		switch path {
		case "/hook":
			if strings.Contains(h.Body, `"event":"lent"`) {
				lentToJob(t, h.Body)
				return h.Authorization == "Bearer letmein"
			}
		case "/grafana/api/annotations":
			if strings.Contains(h.Body, `"event:lent"`) && strings.Contains(h.Body, `"container:job"`) {
				return h.Authorization == "Bearer letmein"
			}
		case "/otlp/v1/logs":
			if strings.Contains(h.Body, "trimtab.lent") {
				return h.Type == "application/x-protobuf"
			}
		default:
			return h.Type == "application/x-protobuf"
		}
	}
	return false
}

func lentToJob(t *testing.T, text string) {
	t.Helper()
	var e event.Event
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if e.Kind != "lent" || e.Record == nil || e.Record.Name != "job" {
		t.Errorf("told of %s, want a loan to job", text)
	}
}

package docker_test

import (
	"bufio"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// Both forms of a log read as lines with times, and only what is new comes.
func TestLogs(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	engine := newEngine(t, docker.Options{})
	for name, args := range map[string][]string{"without a terminal": nil, "with a terminal": {"--tty"}} {
		id := host.StartCommand(t, args, "sh", "-c", "echo old; sleep 2; i=0; while true; do echo out $i; echo err $i >&2; i=$((i+1)); sleep 0.2; done")
		for host.Run(t, "logs", id) == "" { // the old line is not in the log yet
			time.Sleep(20 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		r, err := engine.Logs(ctx, id)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer r.Close()
		seen := map[string]bool{}
		lines := bufio.NewScanner(r)
		for len(seen) < 4 && lines.Scan() {
			stamp, text, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
			if at, err := time.Parse(time.RFC3339Nano, stamp); err != nil || time.Since(at) > time.Minute {
				t.Errorf("%s: %q: %v", name, lines.Text(), err)
			}
			if !strings.HasPrefix(text, "out ") && !strings.HasPrefix(text, "err ") {
				t.Errorf("%s: line %q", name, text)
			}
			seen[text] = true
		}
		if len(seen) < 4 {
			t.Errorf("%s: %v, %v", name, seen, lines.Err())
		}
		cancel()
		for lines.Scan() { // what had come ends with the context
		}
	}
}

func TestLogsThatDockerCannotRead(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	engine := newEngine(t, docker.Options{})
	id := host.Start(t, "--log-driver", "none")
	if r, err := engine.Logs(t.Context(), id); err == nil {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		t.Error("a log that is not kept was opened")
	} else if !strings.Contains(err.Error(), "driver") {
		t.Error(err)
	}
	if _, err := engine.Logs(t.Context(), "no-such-container"); err == nil {
		t.Error("the log of no container was opened")
	}
}

package gpu

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// plainJob is the plain program, which waits to be told.
type plainJob struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// until returns the rest of the first line that begins so.
func (j *plainJob) until(begins string) string {
	j.t.Helper()
	var said []string
	for j.lines.Scan() {
		if rest, ok := strings.CutPrefix(j.lines.Text(), begins); ok {
			return rest
		}
		said = append(said, j.lines.Text())
	}
	j.t.Fatalf("it ended without %q: %s", begins, strings.Join(said[max(0, len(said)-5):], "; "))
	return ""
}

func (j *plainJob) tell(sig syscall.Signal) {
	j.t.Helper()
	if err := j.cmd.Process.Signal(sig); err != nil {
		j.t.Fatal(err)
	}
}

// What the plain program says that it did is what the virtual devices did.
func TestPlain(t *testing.T) {
	for _, mode := range []string{"async", "each50", "staged", "polling", "graph", "storm"} {
		t.Run(mode, func(t *testing.T) {
			node := newNode(t, 1)
			cmd := exec.CommandContext(t.Context(), node.Dir.Lib(Plain), mode, "--wait", "--kernel-us", "50")
			cmd.Env = append(os.Environ(), node.Env()...)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			j := &plainJob{t, cmd, bufio.NewScanner(out)}
			j.until("note ready")
			j.tell(syscall.SIGUSR1)
			if mode == "storm" {
				j.until("step=3 ")
			} else {
				j.until("step=60 ") // past a loss
			}
			j.tell(syscall.SIGUSR2)
			var launches, graphs, in, outs, waits uint64
			if _, err := fmt.Sscanf(j.until("note counts "), "launches=%d graphs=%d in=%d out=%d waits=%d", &launches, &graphs, &in, &outs, &waits); err != nil {
				t.Fatal(err)
			}
			state, err := node.Show(t.Context())
			if err != nil || len(state.Procs) != 1 {
				t.Fatalf("%v: %+v", err, state)
			}
			p := state.Procs[0]
			if launches != p.Kernels || graphs != p.Graphs || in != p.Copies[1] || outs != p.Copies[2] || waits != p.Syncs {
				t.Errorf("it counts %d launches, %d graphs, %d and %d copies, %d waits; the device %+v", launches, graphs, in, outs, waits, p)
			}
			if made := map[string]bool{"async": launches >= 1200, "each50": outs >= 1, "staged": in >= 60, "polling": launches >= 1200, "graph": graphs >= 60 && launches == 0, "storm": launches >= 6000 && waits >= 4}; !made[mode] {
				t.Errorf("it counts %d launches, %d graphs, %d and %d copies, %d waits", launches, graphs, in, outs, waits)
			}
			j.tell(syscall.SIGTERM)
			if _, err := io.Copy(io.Discard, out); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Misuse ends it with status 2.
func TestPlainMisuse(t *testing.T) {
	node := newNode(t, 1)
	for _, args := range [][]string{nil, {"nothing"}, {"async", "--bogus"}} {
		err := exec.CommandContext(t.Context(), node.Dir.Lib(Plain), args...).Run()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 {
			t.Errorf("%v: %v", args, err)
		}
	}
}

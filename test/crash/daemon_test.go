package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/test/daemontest"
)

// TestDaemonKilledInItsRecovery: the real daemon dies again and again in its start, at
// random instants of it and soon after its first write; the one that is left alone puts
// everything back.
func TestDaemonKilledInItsRecovery(t *testing.T) {
	program := binary(t)
	w := newWorker(t, program, rand.New(rand.NewPCG(numberFrom(t, seedEnv, 20261121), 99)))
	dir, err := os.MkdirTemp("", "trimtab-kills-*") // not t.TempDir: a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	w.state = filepath.Join(dir, "state")
	const config = "mode: observe\n"
	file := filepath.Join(dir, "killed.yaml")
	text := fmt.Sprintf("stateDir: %s\napi: {socket: %s/killed}\nmetrics: {listen: \"\"}\n%s", w.state, dir, config)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const rounds, deaths, most = 3, 3, 40
	died, partly := 0, 0 // partly: after a part of the recovery, and before its end
	// die lets a daemon live until its first write, at most that long, and then for a little.
	die := func(limit, then time.Duration) {
		before := w.leaveSomething()
		cmd := exec.CommandContext(t.Context(), program, "daemon", "--config", file, "--conf-dir", filepath.Join(dir, "none"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(limit); w.stands() == before && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(then)
		_ = cmd.Process.Kill() // it runs until it is killed
		if err := cmd.Wait(); !killed(err) {
			t.Fatalf("the daemon ended by itself: %v", err)
		}
		died++
		if now := w.stands(); now != before && now != w.owners {
			partly++
		}
	}
	putsBack := func() {
		d, err := daemontest.Start(t.Context(), daemontest.Options{Binary: program, Dir: dir, Config: config})
		if err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(patience)
		for w.stands() != w.owners && time.Now().Before(end) {
			time.Sleep(50 * time.Millisecond)
		}
		if diff := cmp.Diff(w.owners, w.stands()); diff != "" {
			t.Errorf("the last daemon did not put back (-owner +now):\n%s\n%s", diff, d.Log())
		}
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	random := func(below time.Duration) time.Duration { return time.Duration(w.random.Int64N(int64(below))) }
	for range rounds {
		for death := range deaths {
			limit := patience // two of three live until their first write
			if death == 0 {
				limit = random(3 * time.Second)
			}
			die(limit, random(40*time.Millisecond))
		}
		putsBack()
	}
	if partly == 0 { // these die at their first write
		for partly == 0 && died < most && !t.Failed() {
			die(patience, 0)
		}
		putsBack()
	}
	t.Logf("%d daemons killed in their start, %d in the middle of the recovery", died, partly)
	if partly == 0 && !t.Failed() {
		t.Error("none died in the middle of its recovery: nothing is proved")
	}
}

// leaveSomething lives and dies until values of trimtab's stand, in more than one place
// where none did.
func (w *worker) leaveSomething() (stands string) {
	all := &tally{where: map[string]int{}}
	for stands = w.stands(); stands == w.owners; stands = w.stands() {
		w.die(all, orders{State: w.state, Containers: w.cs, Hides: w.hides, Seed: w.random.Uint64(), Point: 25 + w.random.IntN(40)}, &all.acting)
		originals, _ := filepath.Glob(filepath.Join(w.state, "originals", "*.json"))
		if len(originals) < 2 {
			w.bringBack()
		}
	}
	return stands
}

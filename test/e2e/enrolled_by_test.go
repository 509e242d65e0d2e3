package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

func enrolled(by string, knobs ...string) func(state.Container) bool {
	return func(c state.Container) bool {
		return c.Enrolment.Mode == policies.ModeTune && c.Enrolment.EnrolledBy == by && slices.Equal(c.Enrolment.Knobs, knobs)
	}
}

func observed(c state.Container) bool { return c.Enrolment.Mode == policies.ModeObserve }

// TestEnableByImageAndProject: running containers are enabled by what their engine says
// of them, for as long as was asked, with the knobs that were asked for.
func TestEnableByImageAndProject(t *testing.T) {
	j := job(t, "com.docker.compose.project=trimtab-e2e-vision")
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "seen", observed)
	began := time.Now() // the 6 s run before the command has returned
	if text, err := d.Run(t.Context(), "enable", "--image", workload.Image[:len(workload.Image)-1]+"?", "--knobs", "cpu,memory", "--for", "6s"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	until(t, d, j.Name, "enabled by its image", enrolled("enable", "cpu", "memory"))
	until(t, d, j.Name, "no longer enabled", observed)
	if took := time.Since(began); took < 6*time.Second {
		t.Errorf("enabled for 6 s, it was for %s", took)
	}
	for _, step := range []struct {
		args []string
		want func(state.Container) bool
	}{
		{[]string{"enable", "--compose", "trimtab-e2e-vision"}, enrolled("enable", "cpu")},
		{[]string{"disable", "--compose", "trimtab-e2e-vision"}, observed},
	} {
		if text, err := d.Run(t.Context(), step.args...); err != nil {
			t.Fatalf("%v: %v\n%s", step.args, err, text)
		}
		until(t, d, j.Name, step.args[0]+"d by its project", step.want)
	}
	if text, err := d.Run(t.Context(), "enable", "--compose", "trimtab-e2e-none"); err == nil {
		t.Errorf("a project of no container can be enabled: %s", text)
	}
	until(t, d, j.Name, "nothing left of it", func(c state.Container) bool { return observed(c) && !changed(c) })
	wantQuota(t, j, starvedCPUs, "after all of them")
}

// TestRulesEnrol: a rule of the host's config finds a container by image, project or label.
func TestRulesEnrol(t *testing.T) {
	j := job(t, "com.docker.compose.project=trimtab-e2e-rules", "trimtab-e2e.kind=nightly")
	for _, rule := range []string{"image: '" + workload.Image + "'", "compose: trimtab-e2e-ru*", "label: {trimtab-e2e.kind: 'night*'}"} {
		d := daemon(t, daemontest.Options{Config: "match: [{" + rule + ", mode: tune, knobs: [cpu, gpu], team: rules}]\n"})
		c := until(t, d, j.Name, "enrolled by "+rule, func(c state.Container) bool { return c.Enrolment.Mode == policies.ModeTune })
		if c.Enrolment.Team != "rules" || !slices.Equal(c.Enrolment.Knobs, []string{"cpu", "gpu"}) {
			t.Errorf("%s: %+v", rule, c.Enrolment)
		}
		if err := d.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	wantQuota(t, j, starvedCPUs, "after the last daemon")
}

// TestExecOfANewTrainer: a container that does nothing is watched; a trainer that is
// started in it by exec is found, gets a verdict, and is helped.
func TestExecOfANewTrainer(t *testing.T) {
	j := begun(t, workload.Options{Name: fmt.Sprintf("trimtab-e2e-%d-exec", os.Getpid()), Script: "idle.py",
		DockerArgs: []string{"--network", "none", "--cpus", fmt.Sprint(starvedCPUs), "--label", "trimtab.mode=tune"}})
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "idle", func(c state.Container) bool { return c.Verdict.Class == policies.ClassIdle })
	if out, err := exec.CommandContext(t.Context(), "docker", "exec", "--detach", j.ID, "python3", "-u", "dataloader.py").CombinedOutput(); err != nil {
		t.Fatalf("docker exec: %v: %s", err, out)
	}
	// The loan comes while PyTorch is still imported; what bounds the steps after that is another test's.
	until(t, d, j.Name, "the trainer's quota is raised, and its steps are read as a training job's", func(c state.Container) bool {
		training := c.Verdict.Class != policies.ClassIdle && c.Verdict.Class != policies.ClassUnknown && c.Verdict.Class != policies.ClassInteractive
		return changed(c) && training && c.Rate.PerSecond > 0 && c.Rate.Source == "torch.backward"
	})
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	wantQuota(t, j, starvedCPUs, "after a stop")
}

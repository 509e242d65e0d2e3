package rate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/probes/procfs"
)

// The lines that docs/rate.md gives to people, in a container, through a mount
// as it says.
func TestTheLinesOfTheDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/rate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, ok := strings.Cut(string(doc), "```python\n")
	code, _, closed := strings.Cut(code, "```")
	if !ok || !closed || strings.Count(code, "\n") != 3 {
		t.Fatalf("docs/rate.md has no three lines of Python: %q", code)
	}
	p, path := newSocket(t)
	out, err := exec.Command("docker", "run", "--detach", "--rm", "--network", "none", "--user", "1000",
		"--volume", filepath.Dir(path)+":/run/trimtab/rate:ro", "trimtab-train:1", "python3", "-c",
		"import time\n"+code+"time.sleep(2)\nfor i in range(600):\n step(7 * i)\n time.sleep(0.1)\n").Output()
	if err != nil {
		t.Skipf("needs Docker and the image trimtab-train:1: %v", err)
	}
	id := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "--force", id).Run() })
	out, err = exec.Command("docker", "inspect", "--format", "{{.State.Pid}}", id).Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	memberships, err := os.ReadFile(procfs.Path("/proc", int32(pid), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	_, dir, _ := strings.Cut(string(memberships), "0::")
	dir, _, _ = strings.Cut(dir, "\n")
	if !strings.Contains(dir, id) {
		t.Skipf("needs Docker's containers in the unified tree: %q", dir)
	}
	if err := p.Watch(targetOf(t, "a", pid, filepath.Join(unifiedRoot(t), dir))); err != nil {
		t.Fatal(err)
	}
	wait(t, "ten calls of step", func() bool { n, ok := count(t, p, "a", pid); return ok && n >= 70 && n%7 == 0 })
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	logs, _ := exec.Command("docker", "logs", id).CombinedOutput()
	if len(logs) > 0 {
		t.Errorf("the container says %s", logs)
	}
}

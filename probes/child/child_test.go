package child

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// statusCommand makes the test binary print its own status.
const statusCommand = "status"

// fromMain is what a child printed that was started by a goroutine on the main thread.
//
//trimtab:table set by TestMain, which alone is sure to be there
var fromMain string

func init() { goruntime.LockOSThread() } // TestMain is on the main thread

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == statusCommand {
		b, err := os.ReadFile("/proc/self/status")
		fmt.Printf("%s%v\n", b, err)
		os.Exit(0)
	}
	var out bytes.Buffer
	started, done := make(chan error, 1), make(chan struct{})
	onThread(func() { keep(command(&out), started, make(chan struct{})) }, done)
	if err := <-started; err != nil {
		out.WriteString(err.Error())
	}
	fromMain = out.String()
	goleak.VerifyTestMain(m)
}

func command(out *bytes.Buffer) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", statusCommand)
	cmd.Stdout = out
	return cmd
}

// want are the lines of a process without privileges.
func want(t *testing.T) []string {
	t.Helper()
	lines := []string{"NoNewPrivs:\t1", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000"}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		t.Fatal(err)
	}
	if sets[0].Effective == 0 {
		t.Skip("needs root: there is nothing to give up")
	}
	if sets[0].Effective&(1<<unix.CAP_SETPCAP) != 0 {
		lines = append(lines, "CapBnd:\t0000000000000000")
	}
	return lines
}

// What it leaves running in its group ends with it, before it is waited for.
func TestGroupEndsWithItsChild(t *testing.T) {
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", "sleep 600 &")
	cmd.Stdout = &out // which sleep holds too
	ended, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended: // which waits for all that hold the pipe
	case <-time.After(time.Minute):
		t.Fatal("what it started lives")
	}
}

func TestChildHasNoPrivileges(t *testing.T) {
	lines := want(t)
	var out bytes.Buffer
	ended, err := Start(command(&out))
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	for from, status := range map[string]string{"some thread": out.String(), "the main thread": fromMain} {
		for _, line := range lines {
			if !strings.Contains(status, line+"\n") {
				t.Errorf("started from %s: no %q in its status:\n%s", from, line, status)
			}
		}
	}
}

// privileges are those of each thread, by its ID.
func privileges(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		for _, line := range strings.Split(string(b), "\n") {
			if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") {
				out[filepath.Dir(f)] += line + "\n"
			}
		}
	}
	return out
}

// One thread gives up its privileges: no other, none that is made later, and once
// its child has ended it is gone.
func TestOthersKeepTheirPrivileges(t *testing.T) {
	want(t)
	own := privileges(t)[fmt.Sprintf("/proc/self/task/%d", os.Getpid())]
	without := func() (n int) {
		for _, p := range privileges(t) {
			if p != own {
				n++
			}
		}
		return n
	}
	eventually := func(want int, when string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); without() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s %d threads are without privileges, want %d", when, without(), want)
			}
		}
	}
	eventually(0, "before")
	var cmds []*exec.Cmd
	var ends []<-chan struct{}
	for range 3 {
		cmd := exec.Command("/bin/sleep", "1000")
		ended, err := Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		cmds, ends = append(cmds, cmd), append(ends, ended)
	}
	hold := make(chan struct{}) // threads that are made while the others exist
	for range 16 {
		go func() {
			goruntime.LockOSThread()
			defer goruntime.UnlockOSThread()
			<-hold
		}()
	}
	eventually(len(cmds), "with three children")
	close(hold)
	for i, cmd := range cmds {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-ends[i]
	}
	eventually(0, "after")
}

func TestStartSaysWhyNot(t *testing.T) {
	if _, err := Start(exec.Command("/nonexistent")); err == nil || !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

func TestTail(t *testing.T) {
	var tail Tail
	for i := range 1000 {
		fmt.Fprintf(&tail, "line %d\n", i)
	}
	fmt.Fprint(&tail, "last words\n\n")
	if got := tail.LastLine(); got != "last words" || len(tail.buf) > tailBytes {
		t.Errorf("%q of %d bytes", got, len(tail.buf))
	}
}

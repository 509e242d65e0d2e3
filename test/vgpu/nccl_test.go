package vgpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rankTimeout ends ranks that hang; each of them needs a second or two.
const rankTimeout = time.Minute

// ncclRig is the program that plays a rank, and the environment that gives it devices.
type ncclRig struct {
	program string
	env     []string
	node    *Node
}

// newNCCLRig builds nccl_check.c against the virtual libraries, and makes a node of
// so many devices.
func newNCCLRig(t *testing.T, devices int) ncclRig {
	t.Helper()
	libs, err := Build(t.Context())
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "nccl_check")
	out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-o", program, "nccl_check.c",
		libs.Lib("libnccl.so.2"), libs.Lib("libcudart.so.12"), "-Wl,-rpath-link,"+string(libs)).CombinedOutput()
	if err != nil {
		t.Fatalf("building nccl_check: %v\n%s", err, out)
	}
	dir, err := os.MkdirTemp("/dev/shm", "vgpu-nccl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	node, err := NewNode(t.Context(), libs, dir, Options{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	return ncclRig{program: program, env: append(os.Environ(), node.Env()...), node: node}
}

// a rankRun is what one rank printed, as "key value" lines.
type rankRun struct {
	facts map[string]string
	err   error
	text  string
}

func (r rankRun) seconds(t *testing.T, key string) float64 {
	t.Helper()
	s, err := strconv.ParseFloat(r.facts[key], 64)
	if err != nil {
		t.Fatalf("%q in what a rank printed: %v\n%s", key, err, r.text)
	}
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// ranks runs world processes of one mode, each on its device, and returns what each printed.
func ranks(t *testing.T, world int, args ...string) []rankRun {
	t.Helper()
	return newNCCLRig(t, max(world, 2)).ranks(t, world, args...)
}

func (rig ncclRig) ranks(t *testing.T, world int, args ...string) []rankRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rankTimeout)
	defer cancel()
	port := freePort(t)
	cmds := make([]*exec.Cmd, world)
	outs := make([]bytes.Buffer, world)
	for i := range cmds {
		cmds[i] = exec.CommandContext(ctx, rig.program, args...)
		cmds[i].Env = append(slices.Clone(rig.env), fmt.Sprintf("RANK=%d", i), fmt.Sprintf("WORLD=%d", world),
			"NCCL_SOCKET_IFNAME=lo", fmt.Sprintf("NCCL_COMM_ID=127.0.0.1:%d", port))
		cmds[i].Stdout, cmds[i].Stderr = &outs[i], &outs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	runs := make([]rankRun, world)
	for i, cmd := range cmds {
		err := cmd.Wait()
		runs[i] = rankRun{facts: facts(outs[i].String()), err: err, text: outs[i].String()}
	}
	return runs
}

func facts(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		m[key] = value
	}
	return m
}

func mustSucceed(t *testing.T, runs []rankRun) {
	t.Helper()
	for i, r := range runs {
		if r.err != nil {
			t.Errorf("rank %d: %v\n%s", i, r.err, r.text)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func TestNCCLResultsAreRight(t *testing.T) {
	for _, world := range []int{1, 2, 3, 4} {
		for _, mode := range []string{"sums", "order", "graph"} {
			t.Run(fmt.Sprintf("%s of %d ranks", mode, world), func(t *testing.T) {
				runs := ranks(t, world, mode)
				mustSucceed(t, runs)
				for i, r := range runs {
					if r.facts[mode] != "ok" {
						t.Errorf("rank %d did not say that it checked anything:\n%s", i, r.text)
					}
				}
			})
		}
	}
}

func TestNCCLOneProcessWithSeveralDevices(t *testing.T) {
	run := ranks(t, 1, "all", "2")
	mustSucceed(t, run)
	if run[0].facts["all"] != "ok" {
		t.Errorf("the process checked nothing:\n%s", run[0].text)
	}
}

// The call returns at once; nobody is through before the last has come, and until
// then the devices of those that wait are busy, as NCCL's kernels spin.
func TestNCCLEndsWhenTheLastRankArrives(t *testing.T) {
	const lateMs = 600
	rig := newNCCLRig(t, 4)
	runs := rig.ranks(t, 4, "late", strconv.Itoa(lateMs))
	mustSucceed(t, runs)
	state, err := rig.node.Show(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := runs[0].seconds(t, "came")
	for i, r := range runs {
		if i > 0 && r.seconds(t, "returned") >= last {
			t.Errorf("rank %d: the call returned at %s, after the last rank came at %f", i, r.facts["returned"], last)
		}
		waited := last - r.seconds(t, "returned")
		if busy := float64(state.Devices[i].BusyNs) / 1e9; busy < waited {
			t.Errorf("rank %d waited %.3f s for the last one; its device was busy for %.3f s", i, waited, busy)
		}
		if through := r.seconds(t, "through"); through < last {
			t.Errorf("rank %d was through at %f, before the last rank came at %f", i, through, last)
		}
		if i > 0 && r.facts["query"] != "600" {
			t.Errorf("rank %d: the stream is ready (%s) while a rank is missing", i, r.facts["query"])
		}
	}
}

func TestNCCLDeadRankIsAnErrorNotAHang(t *testing.T) {
	const world = 3
	runs := ranks(t, world, "die")
	mustSucceed(t, runs)
	for i, r := range runs[:world-1] {
		if !strings.HasPrefix(r.facts["error"], "6 ") {
			t.Errorf("rank %d: asynchronous error %q, want ncclRemoteError (6)", i, r.facts["error"])
		}
		if r.facts["query"] != "600" {
			t.Errorf("rank %d: the kernel ended (%s) before the communicator was aborted; NCCL's spins on", i, r.facts["query"])
		}
		if _, ok := r.facts["aborted"]; !ok {
			t.Errorf("rank %d: its stream did not end with ncclCommAbort:\n%s", i, r.text)
		}
	}
}

// A fault of a collective is met by the rank on its device, and by no other.
func TestNCCLFault(t *testing.T) {
	rig := newNCCLRig(t, 2)
	once := func() rankRun { return rig.ranks(t, 1, "ring", "allreduce", "65536")[0] }
	if err := rig.node.Fault(t.Context(), 1, "unsupported=ncclAllReduce"); err != nil {
		t.Fatal(err)
	}
	mustSucceed(t, []rankRun{once()}) // it is on device 0
	if err := rig.node.Fault(t.Context(), 0, "unsupported=ncclAllReduce"); err != nil {
		t.Fatal(err)
	}
	if r := once(); r.err == nil || !strings.Contains(r.text, "ncclAllReduce") || !strings.Contains(r.text, "error 2") {
		t.Errorf("an all-reduce that is not supported: %v, %s", r.err, r.text)
	}
	if err := rig.node.ClearFaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustSucceed(t, []rankRun{once()})
}

// ringScript runs the ranks in a network namespace of their own and prints what its loopback
// received, and how many TCP segments were sent twice.
const ringScript = `
ip link set lo up || exit 3
for rank in $(seq 0 $((WORLD - 1))); do
	RANK=$rank "$@" >&2 & pids="$pids $!"
done
for pid in $pids; do wait $pid || exit 4; done
awk '$1 == "lo:" { print $2 }' /proc/net/dev
awk '$1 == "Tcp:" && $2 != "RtoAlgorithm" { print $13 }' /proc/net/snmp
`

func loopbackBytes(t *testing.T, rig ncclRig, world int, kind string, size int64) (received, resent int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rankTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", ringScript, "sh", rig.program, "ring", kind,
		strconv.FormatInt(size, 10))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.Env = append(slices.Clone(rig.env), fmt.Sprintf("WORLD=%d", world), "NCCL_COMM_ID=127.0.0.1:29400")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s of %d ranks: %v\n%s", kind, world, err, errs.String())
	}
	if n, err := fmt.Sscan(string(out), &received, &resent); n != 2 {
		t.Fatalf("/proc/net/dev and snmp: %v in %q", err, out)
	}
	return received, resent
}

func TestNCCLMovesARingsVolume(t *testing.T) {
	for _, tool := range []string{"ip", "unshare", "awk"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: run scripts/setup-host.sh", tool)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: to make a network namespace")
	}
	rig := newNCCLRig(t, 4)
	const size = 24 << 20 // divides by 2 and 4 ranks
	// What all ranks together send, in buffers.
	volumes := map[string]func(n int64) int64{
		"allreduce":     func(n int64) int64 { return 2 * (n - 1) },
		"reducescatter": func(n int64) int64 { return n - 1 },
		"allgather":     func(n int64) int64 { return n - 1 },
		"broadcast":     func(n int64) int64 { return n - 1 },
	}
	for kind, buffers := range volumes {
		for _, world := range []int{2, 4} {
			got, resent := loopbackBytes(t, rig, world, kind, size)
			want := buffers(int64(world)) * size
			// Headers and acknowledgements are under 1 %. On a busy machine TCP sends segments twice,
			// of up to loopback's 64 KiB, whose acknowledgement was late.
			if most := want + want/100 + resent<<16; got < want || got > most {
				t.Errorf("%s of %d ranks: %d bytes on the wire, want %d to %d: %d segments were sent twice", kind, world, got, want, most, resent)
			}
		}
	}
}

package kernel

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
)

// The states of bpf/states.h and of probes.State are one list.
func TestStatesMatchTheHeader(t *testing.T) {
	src, err := os.ReadFile("../../bpf/states.h")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\t(?:STATE_|NUM_)(\w+) = (\d+),`).FindAllStringSubmatch(string(src), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		names[m[1]] = n
	}
	want := map[string]int{"STATES": int(probes.NumStates)}
	for s := range probes.NumStates {
		want[upper(s.String())] = int(s)
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func upper(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] -= 'a' - 'A'
	}
	return string(b)
}

// Constants that are written in both languages.
func TestNumbersMatchTheHeader(t *testing.T) {
	var src []byte
	for _, header := range []string{"thread.h", "cgroup.h"} {
		text, err := os.ReadFile("../../bpf/" + header)
		if err != nil {
			t.Fatal(err)
		}
		src = append(src, text...)
	}
	for pattern, want := range map[string]int{
		`RECORD_EXITED = (\d+)`:           flagExited,
		`RECORD_TORN = (\d+)`:             flagTorn,
		`RECORD_STOPPED = (\d+)`:          flagStopped,
		`#define MAX_CONTAINERS (\d+)`:    maxContainers,
		`TREE_TASKS = (\d+)`:              treeTasks,
		`TREE_BLKIO = (\d+)`:              treeBlkio,
		`#define MAX_EDGES (\d+) /\* w`:   maxEdges - 1,
		`#define COMM_LEN (\d+)`:          len(countersRecord{}.Comm),
		`#define WAKER_INTERRUPT (\d+)\n`: 0,
	} {
		m := regexp.MustCompile(pattern).FindSubmatch(src)
		if m == nil {
			t.Errorf("%s: not found", pattern)
			continue
		}
		if got, _ := strconv.Atoi(string(m[1])); got != want {
			t.Errorf("%s is %d in C, %d in Go", pattern, got, want)
		}
	}
}

// sample encodes a record as the kernel lays it out.
func sample(edges int) []byte {
	r := countersRecord{AtNs: 1000, StartBootNs: 7, Flags: flagExited, Tid: 11, Tgid: 10, Ppid: 1}
	for i, c := range []byte("tr\x1bin") {
		r.Comm[i] = int8(c)
	}
	r.Thread.Slot, r.Thread.Gen, r.Thread.FirstNs, r.Thread.NumEdges = 3, 4, 900, uint32(edges)
	r.Thread.Ns[probes.StateTimer], r.Thread.Count[probes.StateTimer], r.Thread.LastNs[probes.StateTimer] = 100, 2, 990
	r.Thread.Preempted, r.Thread.ReclaimNs, r.Thread.IoBytes, r.Thread.Faults, r.Thread.Written = 5, 6, 7, 8, 9
	for i := range edges {
		r.Thread.Edges[i] = countersEdge{Waker: -1, State: uint32(probes.StatePipe), Count: 8, Ns: 9}
	}
	whole := unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))
	return append([]byte(nil), whole[:recordHead+edges*edgeBytes]...)
}

func TestDecode(t *testing.T) {
	d, err := decode(sample(1))
	if err != nil {
		t.Fatal(err)
	}
	want := probes.Thread{TID: 11, TGID: 10, PPID: 1, StartNs: 7, Comm: "tr?in", Exited: true, SinceNs: 900, AtNs: 1000,
		Preempted: 5, ReclaimNs: 6, IOBytes: 7, Faults: 8, WrittenBytes: 9, Edges: []probes.Edge{{Waker: -1, State: probes.StatePipe, Count: 8, Ns: 9}}}
	want.Ns[probes.StateTimer], want.Count[probes.StateTimer], want.LastNs[probes.StateTimer] = 100, 2, 990
	if d.slot != 3 || d.gen != 4 || d.torn {
		t.Errorf("slot %d, gen %d, torn %v", d.slot, d.gen, d.torn)
	}
	if diff := cmp.Diff(want, d.thread); diff != "" {
		t.Error(diff)
	}
}

func TestComm(t *testing.T) {
	for in, want := range map[string]string{
		"python3\x00rest": "python3", "a\x1b[2Jb": "a?[2Jb", "\xff\xfe": "??", "": "", "\n": "?",
	} {
		if got := comm([]byte(in)); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestShortRecordIsAnError(t *testing.T) {
	whole := sample(3)
	for n := range whole {
		if _, err := decode(whole[:n]); err == nil {
			t.Fatalf("decoded %d bytes of %d", n, len(whole))
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(sample(0))
	f.Add(sample(2))
	f.Add(append(sample(1), sample(17)...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		visited := 0
		rest, err := bpf.Split(b, recordSize, func(record []byte) error {
			d, err := decode(record)
			visited++
			for _, e := range d.thread.Edges {
				if e.State >= probes.NumStates {
					t.Errorf("state %d", e.State)
				}
			}
			return err
		})
		if err == nil && visited*recordHead+len(rest) > len(b) {
			t.Errorf("%d records and %d bytes left of %d", visited, len(rest), len(b))
		}
	})
}

// Readings never shrink, and keep their sum, whatever is corrected later.
func TestMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now, before [probes.NumStates]uint64
		for s := range now {
			before[s] = rapid.Uint64Range(0, 1000).Draw(t, "before")
			now[s] = rapid.Uint64Range(0, 1500).Draw(t, "now")
		}
		sum := func(v [probes.NumStates]uint64) (n uint64) {
			for _, ns := range v {
				n += ns
			}
			return n
		}
		if sum(now) < sum(before) {
			t.Skip("time does not go back")
		}
		want := sum(now)
		monotone(&now, &before)
		if sum(now) != want {
			t.Fatalf("sum %d, want %d", sum(now), want)
		}
		for s := range now {
			if now[s] < before[s] {
				t.Fatalf("state %d shrinks from %d to %d", s, before[s], now[s])
			}
		}
	})
}

package uprobe

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/fusetest"
	"github.com/trimtab/trimtab/test/uprobetest"
)

func TestMain(m *testing.M) {
	symbols.ChildMain()
	fusetest.Main()
	goleak.VerifyTestMain(m)
}

// counter is a client that counts hits on functions whose names begin with "probed".
type counter struct {
	t       testing.TB
	finder  *Finder
	client  *Client
	hits    *ebpf.Map
	entered map[int32]int
	left    map[int32]int
}

func newCounter(t testing.TB, options ...func(*Finder)) *counter {
	t.Helper()
	uprobetest.NeedsRoot(t)
	f := NewFinder()
	for _, o := range options {
		o(f)
	}
	c := &counter{t: t, finder: f, entered: map[int32]int{}, left: map[int32]int{}}
	var err error
	if c.hits, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 64}); err != nil {
		t.Fatal(err)
	}
	objects := c.load()
	c.client = f.Add(Spec{
		Name: "test", Hooks: []Hook{{Name: "test.hook", What: "calls", Entry: objects.Count, Functions: map[string]Point{"probed*": {}}}},
		Enter:   func(pid int32) error { c.entered[pid]++; return c.hits.Put(uint32(pid), uint64(0)) },
		Leave:   func(pid int32) { c.left[pid]++ },
		Objects: objects,
	})
	t.Cleanup(func() {
		if err := errors.Join(c.client.Close(), c.hits.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// counting holds the program that counts.
type counting struct {
	Count *ebpf.Program `ebpf:"count"`
}

func (c *counter) load() *counting {
	c.t.Helper()
	spec := &ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32), asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4), asm.LoadMapPtr(asm.R1, c.hits.FD()),
		asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0), asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return(),
	}}
	objects := &counting{}
	if err := c.finder.load("test", &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"count": spec}}, objects, nil); err != nil {
		c.t.Fatal(err)
	}
	return objects
}

func (c *counter) count(pid int32) uint64 {
	var n uint64
	if err := c.hits.Lookup(uint32(pid), &n); err != nil {
		return 0
	}
	return n
}

func (c *counter) watch(t probes.Target) {
	c.t.Helper()
	if err := c.client.Watch(t); err != nil {
		c.t.Fatal(err)
	}
}

func (c *counter) until(what string, ok func() bool) {
	c.t.Helper()
	var last error
	for range 200 {
		if err := errors.Join(c.client.Scan(context.Background()), c.client.Rotate()); err != nil {
			last = err
		}
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("in 10 s: not %s; %v", what, last)
}

func (c *counter) has(pid int32) func() bool {
	return func() bool { return c.client.Has(pid, "probed") }
}

// attachments counts the uprobes that this process holds, by links or perf events.
func (c *counter) attachments() int {
	c.t.Helper()
	<-c.finder.price.done // it has some of its own
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		c.t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		info, _ := os.ReadFile("/proc/self/fdinfo/" + fd.Name())
		if to == "anon_inode:[perf_event]" || strings.Contains(string(info), "uprobe_multi") {
			n++
		}
	}
	return n
}

func (c *counter) files() int {
	c.t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		c.t.Fatal(err)
	}
	return len(fds)
}

const probedCode = "int probed(int n) { volatile int k = n; return k; }\n"

func job(t testing.TB, target probes.Target, dir string) *uprobetest.Job {
	t.Helper()
	return uprobetest.Start(t, target, uprobetest.Build(t, dir, "job", "job"))
}

// byPerfEvents is how kernels before 6.10 are attached to.
func byPerfEvents(f *Finder) { f.attacher.multi = false }

package mpi

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
)

func TestMain(m *testing.M) {
	symbols.ChildMain()
	goleak.VerifyTestMain(m)
}

// watchMPI watches a cgroup of its own; read tells of the processes in it, by TGID.
func watchMPI(t *testing.T, name string) (target probes.Target, read func() map[int32]probes.MPIProcess) {
	t.Helper()
	target, p := newProbe(t, name)
	return target, func() map[int32]probes.MPIProcess { t.Helper(); return processes(t, p, target.Key) }
}

func newProbe(t *testing.T, name string) (probes.Target, *Probe) {
	t.Helper()
	uprobetest.NeedsRoot(t)
	target := uprobetest.Cgroup(t, name)
	f := uprobe.NewFinder()
	uprobetest.Closing(t, f.Close)
	p, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	uprobetest.Closing(t, p.Close)
	if !p.Returns() {
		t.Skip("this kernel ends programs whose returns are probed: waits in MPI are not timed on it")
	}
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	return target, p
}

// jobWithMPI is a process that maps the stand-in for MPI, once it was found.
func jobWithMPI(t *testing.T, name string) (job *uprobetest.Job, read func() probes.MPIProcess, p *Probe) {
	t.Helper()
	target, p := newProbe(t, name)
	dir := t.TempDir()
	job = uprobetest.Start(t, target, uprobetest.Build(t, dir, "job", "job"))
	job.Do("load %s", uprobetest.Library(t, dir, "libmpi.so.40", "mpi"))
	read = func() probes.MPIProcess { t.Helper(); return processes(t, p, target.Key)[job.PID] }
	uprobetest.Until(t, "MPI is found", func() bool { return read().TGID != 0 && p.Has(job.PID, "PMPI_Barrier") })
	return job, read, p
}

// Each function that waits is counted, and those that do not are left alone.
func TestEveryFunction(t *testing.T) {
	job, read, _ := jobWithMPI(t, "mpi-all")
	was := read().Calls
	for _, name := range functions {
		name = strings.TrimPrefix(name, "P")
		job.Do("call %s 3 1", name)
		if is := read().Calls; is != was+3 {
			t.Errorf("%s: %d calls, want 3", name, is-was)
		}
		was = read().Calls
	}
	job.Do("call MPI_Isend 5 1")
	if is := read().Calls; is != was {
		t.Errorf("MPI_Isend counts %d waits", is-was)
	}
}

// A wait is timed whether it spins or sleeps, once where the library calls itself, and while it
// lasts. What it waited at least is the job's own word; the test's clock bounds it from above.
func TestWaits(t *testing.T) {
	job, read, _ := jobWithMPI(t, "mpi-waits")
	for name, spin := range map[string]int{"spins": 1, "sleeps": 0} {
		job.Do("wait - 20000000 %d", spin)
		for _, c := range []struct {
			function string
			least    time.Duration
		}{{"MPI_Barrier", 5 * 20 * time.Millisecond}, {"MPI_Allreduce", 5 * 40 * time.Millisecond}} {
			was, began := read(), time.Now()
			job.Do("call %s 5 1", c.function)
			is, took := read(), time.Since(began)
			got := time.Duration(is.WaitNs - was.WaitNs)
			if is.Calls-was.Calls != 5 || got < c.least || got > took {
				t.Errorf("%s %s: %d calls of %v in all, want 5 of at least %v and at most %v", c.function, name, is.Calls-was.Calls, got, c.least, took)
			}
			if is.CountedNs <= was.CountedNs || time.Duration(is.CountedNs-was.CountedNs) > took+time.Second {
				t.Errorf("%s %s: timed for %d ns more", c.function, name, is.CountedNs-was.CountedNs)
			}
		}
	}
	job.Do("wait - 3000000000 0")
	was := read()
	job.Do("background MPI_Barrier 1 1")
	for range 100 {
		if is := read(); is.WaitNs-was.WaitNs > 300e6 {
			if is.WaitNs-was.WaitNs > 3e9 {
				t.Errorf("an open wait of 3 s counts %d ns", is.WaitNs-was.WaitNs)
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("a wait that lasts is not counted while it does")
}

// Unwatch takes the probes out.
func TestUnwatch(t *testing.T) {
	job, read, p := jobWithMPI(t, "mpi-unwatch")
	job.Do("call MPI_Barrier 1 1")
	if read().Calls == 0 {
		t.Fatal("nothing counted before")
	}
	for key := range p.Watched() {
		p.Unwatch(key)
	}
	job.Do("call MPI_Barrier 1 1")
	if got := read(); got.TGID != 0 {
		t.Errorf("still read: %+v", got)
	}
	if got := p.Spending(); len(got) != 0 {
		t.Errorf("still spends: %+v", got)
	}
}

// Two threads: while one is inside a call, what the other calls is not added, nor does it end the
// first one's.
func TestThreads(t *testing.T) {
	job, read, _ := jobWithMPI(t, "mpi-threads")
	job.Do("wait - 3000000000 0")
	was, began := read(), time.Now()
	job.Do("background MPI_Recv 1 1")
	for read().Calls == was.Calls {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the second thread's call is not seen")
		}
		time.Sleep(5 * time.Millisecond)
	}
	inside := read()
	job.Do("call MPI_Bcast 50 1") // of the main thread, meanwhile
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		is := read()
		if got := time.Duration(is.WaitNs - was.WaitNs); got >= 3*time.Second {
			if took := time.Since(began); got > took {
				t.Errorf("%v in MPI, of %v that passed", got, took)
			}
			if inside.Caller == 0 || is.Caller != inside.Caller {
				t.Errorf("the caller is thread %d, and was %d", is.Caller, inside.Caller)
			}
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("%v of the second thread's 3 s are told", got)
		}
	}
	job.Do("call MPI_Bcast 1 1")
	if is := read(); is.Caller == inside.Caller {
		t.Error("the main thread's call is not seen once the other has returned")
	}
}

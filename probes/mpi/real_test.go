package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/uprobetest"
)

// Real libraries: each call of each rank is counted, and waits are as long as the ranks say
// themselves. The rank that waits least is the late one, unless a busy machine had it wait too, as it says.
func TestRealLibraries(t *testing.T) {
	openMPI := []string{"--allow-run-as-root", "--oversubscribe"}
	for _, lib := range []struct {
		name, packages string
		mpi            string // whose launcher starts it
		flags          []string
		python         bool
	}{
		{"mpich", "mpich and libmpich-dev", "mpich", nil, false},
		{"openmpi", "openmpi-bin and libopenmpi-dev", "openmpi", openMPI, false},
		{"mpi4py", "openmpi-bin and python3-mpi4py", "openmpi", openMPI, true},
	} {
		t.Run(lib.name, func(t *testing.T) {
			launcher, err := exec.LookPath("mpiexec." + lib.mpi)
			if err != nil {
				t.Skipf("needs mpiexec.%s: apt-get install %s", lib.mpi, lib.packages)
			}
			dir := t.TempDir()
			program := []string{filepath.Join(dir, "late")}
			if lib.python {
				script, err := filepath.Abs("testdata/late.py")
				if err != nil {
					t.Fatal(err)
				}
				program = []string{"/usr/bin/python3", script} // Debian's, which has its packages
				if out, err := exec.Command(program[0], "-c", "import mpi4py").CombinedOutput(); err != nil {
					t.Skipf("needs mpi4py: apt-get install %s: %s", lib.packages, out)
				}
			} else {
				cc, err := exec.LookPath("mpicc." + lib.mpi)
				if err != nil {
					t.Skipf("needs mpicc.%s: apt-get install %s", lib.mpi, lib.packages)
				}
				if out, err := exec.Command(cc, "-O1", "-o", program[0], "testdata/late.c").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			target, read := watchMPI(t, "mpi-"+lib.name)
			uprobetest.Run(t, target, nil, launcher, slices.Concat(lib.flags, []string{"-n", "2"}, program, []string{dir})...)
			var pids [2]int32
			for rank := range pids {
				pids[rank], _ = said(t, dir, "ready", rank)
			}
			uprobetest.Until(t, "both ranks are found", func() bool { p := read(); return p[pids[0]].TGID != 0 && p[pids[1]].TGID != 0 })
			before := read()
			if err := os.WriteFile(filepath.Join(dir, "go.0"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			var waits, itself [2]time.Duration
			for rank, pid := range pids {
				_, itself[rank] = said(t, dir, "done", rank)
				is, was := read()[pid], before[pid]
				waits[rank] = time.Duration(is.WaitNs - was.WaitNs)
				if is.Calls-was.Calls != 50 {
					t.Errorf("rank %d: %d calls, want 50", rank, is.Calls-was.Calls)
				}
				if waits[rank] > itself[rank] || rank == 0 && waits[rank] < itself[rank]*8/10 {
					t.Errorf("rank %d: %v in MPI; it says %v itself", rank, waits[rank], itself[rank])
				}
			}
			if waits[1] > waits[0]/2 && itself[1] < itself[0]*4/10 {
				t.Errorf("rank 1 is late, and waits %v; rank 0 %v; they say %v themselves", waits[1], waits[0], itself)
			}
			if err := os.WriteFile(filepath.Join(dir, "end.0"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			uprobetest.Until(t, "both ranks end", func() bool { return len(read()) == 0 })
		})
	}
}

// said is what a rank says of itself, once it does.
func said(t *testing.T, dir, what string, rank int) (pid int32, waited time.Duration) {
	t.Helper()
	uprobetest.Until(t, fmt.Sprintf("rank %d is %s", rank, what), func() bool {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%s.%d", what, rank)))
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(text), &pid, &waited)
		return err == nil
	})
	return pid, waited
}

// processes are those that a reading tells of, by TGID.
func processes(t *testing.T, p *Probe, key string) map[int32]probes.MPIProcess {
	t.Helper()
	into, out := map[string]*probes.Sample{}, map[int32]probes.MPIProcess{}
	uprobetest.Read(t, p, into)
	if s := into[key]; s != nil && s.MPI != nil {
		for _, process := range s.MPI.Processes {
			out[process.TGID] = process
		}
	}
	return out
}

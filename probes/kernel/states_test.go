package kernel

import (
	"strconv"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
)

// Workloads print a line when they have reached what they are for.
const (
	spin      = "print('go',flush=True)\nwhile True: pass"
	sleepPipe = "import os\nr,w=os.pipe()\nprint('go',flush=True)\nos.read(r,1)"
	sleepUnix = "import socket\na,b=socket.socketpair()\nprint('go',flush=True)\na.recv(1)"
	sleepInet = "import socket\ns=socket.socket()\ns.bind(('127.0.0.1',0))\ns.listen()\nprint('go',flush=True)\ns.accept()"
	sleepCond = "import threading\nl=threading.Lock()\nl.acquire()\nprint('go',flush=True)\nl.acquire()"
	sleepTime = "import time\nprint('go',flush=True)\ntime.sleep(100)"
	pollPipe  = "import os,select\nr,w=os.pipe()\np=select.poll()\np.register(r,1)\nprint('go',flush=True)\np.poll()"
	pollNone  = "import select\nprint('go',flush=True)\nselect.select([],[],[],100)"
	epollWait = "import select\ne=select.epoll()\nprint('go',flush=True)\ne.poll()"
	waitChild = "import os,time\np=os.fork()\nif p==0: time.sleep(100)\nprint('go',flush=True)\nos.waitpid(p,0)"
	lockFile  = "import fcntl,os,time,sys\nf=open(sys.argv[1],'w')\nfcntl.flock(f,2)\np=os.fork()\n" +
		"if p==0:\n g=open(sys.argv[1],'w')\n print(os.getpid(),flush=True)\n fcntl.flock(g,2)\ntime.sleep(100)"
	readTTY = "import os\nm,s=os.openpty()\nprint('go',flush=True)\nos.read(m,1)"
	stopped = "import os\nprint('go',flush=True)\nos.kill(os.getpid(),19)"
	// Another process stops it in its sleep, and ends.
	stoppedAsleep = "import os,time\nm=os.getpid()\np=os.fork()\nif p==0: time.sleep(0.1); os.kill(m,19); print('go',flush=True); os._exit(0)\ntime.sleep(100)"
	sigWait       = "import signal\nprint('go',flush=True)\nsignal.sigwait([signal.SIGUSR1])"
)

func TestStates(t *testing.T) {
	p := newProbe(t, Options{})
	for _, tc := range []struct {
		name, code string
		want       probes.State
	}{
		{"run", spin, probes.StateRun},
		{"pipe", sleepPipe, probes.StatePipe},
		{"unix", sleepUnix, probes.StateUnix},
		{"inet", sleepInet, probes.StateInet},
		{"futex", sleepCond, probes.StateFutex},
		{"timer", sleepTime, probes.StateTimer},
		{"poll first pollfd", pollPipe, probes.StatePipe},
		{"select", pollNone, probes.StatePoll},
		{"epoll", epollWait, probes.StatePoll},
		{"child", waitChild, probes.StateChild},
		{"device", readTTY, probes.StateDevice},
		{"stopped", stopped, probes.StateOther},
		{"stopped while it sleeps", stoppedAsleep, probes.StateOther},
		{"sigwait", sigWait, probes.StateOther},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBox(t, nil, "trimtab-states")
			watch(t, p, b, "box")
			j := b.start(tc.code)
			j.line()
			time.Sleep(50 * time.Millisecond)
			d := over(t, p, "box", j.pid(), 300*time.Millisecond)
			states := []probes.State{tc.want}
			if tc.want == probes.StateRun {
				states = append(states, probes.StateQueued) // other work on the machine
			}
			if share(d, states...) < 0.95 {
				t.Errorf("want %s, have %s", tc.want, describe(d))
			}
			if is := threadOf(t, read(t, p, "box"), j.pid()).Stopped; is != (tc.code == stopped || tc.code == stoppedAsleep) {
				t.Errorf("stopped by a signal: %v", is)
			}
		})
	}
}

// The same sleeps, begun before the container is watched.
func TestSeedsSleepingThreads(t *testing.T) {
	p := newProbe(t, Options{})
	for _, tc := range []struct {
		name, code string
		want       probes.State
	}{
		{"pipe", sleepPipe, probes.StatePipe},
		{"futex", sleepCond, probes.StateFutex},
		{"poll", pollPipe, probes.StatePoll}, // another thread's memory is out of reach
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBox(t, nil, "trimtab-seed")
			j := b.start(tc.code)
			j.line()
			time.Sleep(50 * time.Millisecond)
			watch(t, p, b, "box")
			first := read(t, p, "box")
			if !first.Seeding {
				t.Error("the first sample does not say Seeding")
			}
			before := threadOf(t, first, j.pid())
			time.Sleep(100 * time.Millisecond)
			second := read(t, p, "box")
			if second.Seeding {
				t.Error("the second sample still says Seeding")
			}
			if d := delta(before, threadOf(t, second, j.pid())); share(d, tc.want) != 1 {
				t.Errorf("want %s, have %s", tc.want, describe(d))
			}
		})
	}
}

func TestFileLockIsFile(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-file")
	watch(t, p, b, "box")
	j := b.start(lockFile, t.TempDir()+"/lock")
	child, err := strconv.Atoi(j.line())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if d := over(t, p, "box", int32(child), 200*time.Millisecond); share(d, probes.StateFile) < 0.95 {
		t.Errorf("want file, have %s", describe(d))
	}
}

package kernel

import (
	"context"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/trimtab/trimtab/probes"
)

// pingPong makes two processes on one CPU hand a byte to and fro: two context
// switches for each round, both of tasks in the box.
const pingPong = "import os\nos.sched_setaffinity(0,{0})\nr,w=os.pipe()\nR,W=os.pipe()\n" +
	"if os.fork()==0:\n while True: os.read(r,1); os.write(W,b'x')\n" +
	"print('go',flush=True)\nwhile True: os.write(w,b'x'); os.read(R,1)"

// emptyProgram attaches a program that does nothing to a tracepoint: the floor
// of what any program there costs by the kernel's accounting.
func emptyProgram(b *testing.B, tracepoint string) *ebpf.Program {
	b.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: tracepoint,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { prog.Close() })
	ln, err := link.AttachTracing(link.TracingOptions{Program: prog})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	return prog
}

func perRun(b *testing.B, prog *ebpf.Program) func() float64 {
	b.Helper()
	before, err := prog.Stats()
	if err != nil {
		b.Fatal(err)
	}
	return func() float64 {
		after, err := prog.Stats()
		if err != nil {
			b.Fatal(err)
		}
		runs := after.RunCount - before.RunCount
		if runs == 0 {
			b.Fatal("the program did not run")
		}
		return float64(after.Runtime-before.Runtime) / float64(runs)
	}
}

// benchmarkSwitch reports nanoseconds for each run above an empty program on
// the same hook in the same run. Goals: 80 unwatched, 200 watched.
func benchmarkSwitch(b *testing.B, watched bool) {
	p := newProbe(b, Options{})
	box := newBox(b, nil, "trimtab-bench")
	other := newBox(b, nil, "trimtab-bench-other")
	watch(b, p, box, "box")
	if watched {
		box.start(pingPong).line()
	} else {
		other.start(pingPong).line()
		box.start(sleepPipe).line()
	}
	empty := map[string]*ebpf.Program{}
	for _, tp := range []string{"sched_switch", "sched_waking", "sched_wakeup"} {
		empty[tp] = emptyProgram(b, tp)
	}
	b.ResetTimer()
	for b.Loop() {
		ends := map[string]func() float64{}
		for tp, prog := range empty {
			ends[tp] = perRun(b, prog)
		}
		before := p.runTimes()
		time.Sleep(time.Second)
		for name, now := range p.runTimes() {
			tp := map[string]string{"on_switch": "sched_switch", "on_waking": "sched_waking", "on_wakeup": "sched_wakeup"}[name]
			runs := now.RunCount - before[name].RunCount
			if tp == "" || runs == 0 {
				continue
			}
			floor := ends[tp]()
			b.ReportMetric(float64(now.Runtime-before[name].Runtime)/float64(runs)-floor, tp+"-ns")
			if tp == "sched_switch" {
				b.ReportMetric(floor, "empty-ns")
				b.ReportMetric(float64(runs), "switches")
			}
		}
	}
}

func BenchmarkSwitchUnwatched(b *testing.B) { benchmarkSwitch(b, false) }
func BenchmarkSwitchWatched(b *testing.B)   { benchmarkSwitch(b, true) }

// One reading of 300 threads; the goal is well under a millisecond.
func BenchmarkRead300(b *testing.B) {
	p := newProbe(b, Options{})
	box := newBox(b, nil, "trimtab-bench")
	watch(b, p, box, "box")
	box.start("import threading,time\nfor i in range(299): threading.Thread(target=time.sleep,args=(100,)).start()\nprint('go',flush=True)").line()
	into := map[string]*probes.Sample{}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Read(context.Background(), into); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(into["box"].Kernel.Threads)), "threads")
}

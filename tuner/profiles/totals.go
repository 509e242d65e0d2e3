package profiles

import "github.com/trimtab/trimtab/tuner/observe"

// totals is what all processes of a container together called and moved in a
// window, and how many they are. What was not read is not in it: see the Has fields.
type totals struct {
	HasCUDA, HasNCCL  bool // some process called it
	Launches          float64
	HasLaunches       bool    // they were counted long enough to tell
	InBytes, OutBytes float64 // copied to the device, and from it
	Collectives       float64
	CollectiveBytes   float64
	Processes         int // alive at the window's end
	Threads           int
	RxBytes           float64
	HasNetwork        bool
}

// totalsOf sums over the window's processes and threads.
func totalsOf(w *observe.Window) totals {
	var t totals
	for i := range w.Processes {
		p := &w.Processes[i]
		if n := w.Launched(p); n > 0 || p.Graphs > 0 {
			t.HasLaunches = true
			t.Launches += n + float64(p.Graphs)
		}
		t.HasCUDA = t.HasCUDA || t.HasLaunches || p.Copies > 0
		t.HasNCCL = t.HasNCCL || p.Calls > 0
		t.InBytes, t.OutBytes = t.InBytes+float64(p.CopyBytes), t.OutBytes+float64(p.OutBytes)
		t.Collectives, t.CollectiveBytes = t.Collectives+float64(p.Calls), t.CollectiveBytes+float64(p.Bytes)
	}
	processes := map[int32]bool{}
	for _, th := range w.Threads {
		if !th.Exited {
			t.Threads++
			processes[th.TGID] = true
		}
	}
	t.Processes = len(processes)
	if n := w.Exchange(); n.Ns > 0 {
		// Per second of its own reading, for the length of this window.
		t.HasNetwork, t.RxBytes = true, float64(n.RxBytes)/(float64(n.Ns)/1e9)*w.Seconds()
	}
	return t
}

// busiestDuty is the mean duty of the busiest device that the container holds; ok
// is false where no sample tells.
func busiestDuty(w *observe.Window) (share float64, ok bool) {
	for _, d := range w.Devices {
		if d.Samples > 0 {
			share, ok = max(share, d.Duty), true
		}
	}
	return share, ok
}

// busiestSMs is the device, of those that the container holds, whose multiprocessors had most to do;
// nil where none counts that.
func busiestSMs(w *observe.Window) (most *observe.Device) {
	for i, d := range w.Devices {
		if d.Activities > 0 && (most == nil || d.SM > most.SM) {
			most = &w.Devices[i]
		}
	}
	return most
}

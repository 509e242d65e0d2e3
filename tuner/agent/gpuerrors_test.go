package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/state"
)

// ill is a host with two GPUs, of which a test says what their driver reports.
type ill struct {
	devices []probes.Device
	say     chan func(ds []probes.Device)
}

func newIll(holders ...string) *ill {
	h := &ill{say: make(chan func([]probes.Device), 1)}
	none := uint64(0)
	for i, uuid := range []string{"GPU-a", "GPU-b"} {
		d := probes.Device{Index: i, UUID: uuid, Errors: probes.DeviceErrors{ECCUncorrected: &none}}
		for _, key := range holders {
			if i == 0 {
				d.Processes = append(d.Processes, probes.DeviceProcess{PID: 100, Container: key})
			}
		}
		h.devices = append(h.devices, d)
	}
	return h
}

// on makes it the agent's host. What is reported once is read once.
func (h *ill) on(o *Options) {
	read := o.ReadHost
	o.ReadHost = func() (probes.Host, error) {
		host, err := read()
		for i := range h.devices {
			h.devices[i].Errors.XIDs = nil
		}
		select {
		case f := <-h.say:
			f(h.devices)
		default:
		}
		host.Devices = slices.Clone(h.devices)
		return host, err
	}
}

func (h *ill) xids(device int, numbers ...uint32) {
	h.say <- func(ds []probes.Device) { ds[device].Errors.XIDs = numbers }
	time.Sleep(3 * time.Second)
}

func (n *node) told(kind state.RecordKind) (out []state.Record) {
	n.t.Helper()
	all, err := n.history.Query(context.Background(), history.Filter{})
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r state.Record) bool { return r.Kind != kind })
}

// Each error is told once, with what it means, of the container that held the device, and nothing is written for it.
func TestGPUErrorsAreToldAndNeverActedOn(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c, _ := n.job("train"), n.job("other")
		h := newIll(c.Key())
		d := n.start(h.on)
		d.until("train", "settled", isSettled)
		d.until("other", "settled", isSettled)
		time.Sleep(2 * time.Minute)
		writes := len(n.engine.Applied())
		h.xids(0, 63, 94, 94)
		h.say <- func(ds []probes.Device) {
			ds[0].Lost, ds[0].Processes, ds[0].Errors.XIDs = "fell off the bus", nil, []uint32{79}
		}
		time.Sleep(2 * time.Minute)

		want := []string{
			"GPU 0 reported XID 63: row remapping recorded",
			"GPU 0 reported XID 94 2 times: a memory error was contained: it ended the program that it struck",
			"GPU 0 reported XID 79: fell off the bus",
		}
		var got []string
		for _, r := range n.told(state.RecordGPUError) {
			if r.Name != "train" || r.Key != c.Key() || r.ByProgram {
				t.Errorf("told of %q, a program's own: %v", r.Name, r.ByProgram)
			}
			got = append(got, r.Text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		s := d.Snapshot()
		if counts := s.Devices[0].Errors.XIDs; !slices.Equal(counts, []state.XIDCount{{XID: 63, Count: 1}, {XID: 79, Count: 1}, {XID: 94, Count: 2}}) {
			t.Errorf("counted %+v", counts)
		}
		if f := s.Devices[0].Errors.Faults; f != 4 {
			t.Errorf("%d faults, want 4", f)
		}
		if len(s.Devices[1].Errors.XIDs) != 0 {
			t.Errorf("the other device: %+v", s.Devices[1].Errors)
		}
		for _, shown := range s.Containers {
			if texts := len(shown.GPUErrors); (texts == len(want)) != (shown.Name == "train") || texts > 0 && shown.GPUErrors[2].Text != want[2] {
				t.Errorf("%s shows %+v", shown.Name, shown.GPUErrors)
			}
		}
		if more := n.engine.Applied()[writes:]; len(more) > 0 {
			t.Errorf("written after the errors: %+v", more)
		}
		d.stop(false)
	})
}

// Memory errors that the driver had counted before are no news; one more is told once, and a
// driver that was loaded anew begins again. Where no container held the device, the host's history tells.
func TestMemoryErrorsAreToldAsTheyCome(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		h := newIll()
		count := func(v uint64) {
			h.say <- func(ds []probes.Device) { ds[1].Errors.ECCUncorrected = &v }
			time.Sleep(3 * time.Second)
		}
		earlier := uint64(7)
		h.devices[1].Errors.ECCUncorrected = &earlier
		d := n.start(h.on)
		d.until("train", "read", func(c state.Container) bool { return c.UsedCPUs > 0 })
		count(9)
		count(0)
		time.Sleep(tellErrorEvery)
		count(1)
		got := n.told(state.RecordGPUError)
		want := []string{"GPU 1 reported memory errors that ECC cannot correct: 2, and 9 since the driver was loaded", "GPU 1 reported memory errors that ECC cannot correct: 1, and 1 since the driver was loaded"}
		if len(got) != 2 || got[0].Text != want[0] || got[1].Text != want[1] || got[0].Key != "" {
			t.Errorf("told %+v, want %q of the host", got, want)
		}
		d.stop(false)
	})
}

// A storm of errors, or of numbers that nobody knows, is counted in full and told within bounds.
func TestErrorStorm(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		h := newIll(c.Key())
		d := n.start(h.on)
		d.until("train", "read", func(c state.Container) bool { return c.UsedCPUs > 0 })
		for range 100 { // five minutes
			h.xids(0, 13, 13)
		}
		time.Sleep(2 * tellErrorEvery)
		if told := n.told(state.RecordGPUError); len(told) < 5 || len(told) > 7 || !told[0].ByProgram {
			t.Errorf("told %d times in five minutes, want once a minute, of a program", len(told))
		}
		var many []uint32
		for i := range uint32(100) {
			many = append(many, 200+i, 1<<31+i)
		}
		h.xids(0, many...)
		s := d.Snapshot()
		var sum uint64
		for _, x := range s.Devices[0].Errors.XIDs {
			if sum += x.Count; x.XID > maxXIDNumber {
				t.Errorf("XID %d is counted apart", x.XID)
			}
		}
		if f := s.Devices[0].Errors.Faults; f != 200 {
			t.Errorf("%d faults: a program's own are not", f)
		}
		if sum != 400 || len(s.Devices[0].Errors.XIDs) > maxXIDs+1 {
			t.Errorf("%d errors by %d numbers, want 400 by at most %d", sum, len(s.Devices[0].Errors.XIDs), maxXIDs+1)
		}
		for _, shown := range s.Containers {
			if len(shown.GPUErrors) != maxErrorsShown {
				t.Errorf("%d errors are shown", len(shown.GPUErrors))
			}
		}
		d.stop(false)
	})
}

// An error that is told up to a minute late is told of those who held the device when it came, also of one that has ended since.
func TestLateErrorsNameWhoHeldTheDevice(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		first, second, third := n.job("first"), n.job("second"), n.job("third")
		h := newIll(first.Key())
		d := n.start(h.on)
		d.until("third", "read", func(c state.Container) bool { return c.UsedCPUs > 0 })
		held := func(key string, numbers ...uint32) {
			h.say <- func(ds []probes.Device) {
				ds[0].Processes = []probes.DeviceProcess{{PID: 100, Container: key}}
				ds[0].Errors.XIDs = numbers
			}
			time.Sleep(6 * time.Second)
		}
		held(first.Key(), 94)
		held(second.Key())
		held(second.Key(), 94, 94)
		held(third.Key())
		n.engine.Remove(second.ID.Container)
		time.Sleep(2 * tellErrorEvery)
		var names []string
		for _, r := range n.told(state.RecordGPUError) {
			names = append(names, r.Name)
		}
		if !slices.Equal(names, []string{"first", "second"}) {
			t.Errorf("told of %q", names)
		}
		d.stop(false)
	})
}

// The containers on a GPU's MIG slices are those that its errors strike.
func TestErrorsOfAGPUWithSlices(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		one, other := n.job("one"), n.job("other")
		h := newIll()
		for i, c := range []string{one.Key(), other.Key()} {
			h.devices = append(h.devices, probes.Device{UUID: []string{"MIG-a", "MIG-b"}[i], Parent: "GPU-a", Sharing: "mig", Processes: []probes.DeviceProcess{{PID: 100, Container: c}}})
		}
		d := n.start(h.on)
		d.until("other", "read", func(c state.Container) bool { return c.UsedCPUs > 0 })
		h.xids(0, 79)
		var names []string
		for _, r := range n.told(state.RecordGPUError) {
			names = append(names, r.Name)
		}
		if slices.Sort(names); !slices.Equal(names, []string{"one", "other"}) {
			t.Errorf("told of %q", names)
		}
		d.stop(false)
	})
}

// All devices together have so many records a minute. What finds no room is told in its turn, with its number.
func TestErrorsOfManyDevices(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		h := newIll()
		var numbers []uint32
		for i := range uint32(20) {
			numbers = append(numbers, 200+i)
		}
		for i := len(h.devices); i < 8; i++ {
			h.devices = append(h.devices, probes.Device{Index: i, UUID: "GPU-" + string(rune('a'+i))})
		}
		d := n.start(h.on)
		d.until("train", "read", func(c state.Container) bool { return c.UsedCPUs > 0 })
		for minute := range 3 {
			for range 10 {
				h.say <- func(ds []probes.Device) {
					for i := range ds {
						ds[i].Errors.XIDs = numbers
					}
				}
				time.Sleep(6 * time.Second)
			}
			if told := len(n.told(state.RecordGPUError)); told > maxErrorsTold*(minute+2) { // the next one may have begun
				t.Errorf("%d are told after %d minutes", told, minute+1)
			}
		}
		texts := map[string]bool{}
		for _, r := range n.told(state.RecordGPUError) {
			text, _, _ := strings.Cut(r.Text, " times")
			if at := strings.LastIndex(text, " "); text != r.Text {
				text = text[:at]
			}
			texts[text] = true
		}
		if len(texts) != 160 {
			t.Errorf("%d of 160 errors are told in three minutes", len(texts))
		}
		d.stop(false)
	})
}

// What was counted of devices goes with them: which there are, the NVML child says.
func TestErrorsOfDevicesThatAreGone(t *testing.T) {
	l, now := &Agent{}, time.Now()
	list := func(from, count int) {
		l.host.Devices = nil
		for i := range count {
			l.host.Devices = append(l.host.Devices, probes.Device{Index: i, UUID: fmt.Sprint(from + i)})
		}
		now = now.Add(time.Second)
		l.noteErrors(now)
	}
	for i := range 10 {
		if list(i*1000, 1000); len(l.errors.devices) > maxHealth {
			t.Fatalf("%d devices are known", len(l.errors.devices))
		}
	}
	list(0, 2)
	now = now.Add(keepHealth)
	if list(0, 1); len(l.errors.devices) != 1 {
		t.Errorf("an hour later %d devices are known, of one", len(l.errors.devices))
	}
}

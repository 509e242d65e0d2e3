package agent

import (
	"context"
	"slices"
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
			"GPU 0 reported XID 63: a bad row or page of its memory was noted, to be replaced",
			"GPU 0 reported XID 94 2 times: a memory error was contained: it ended the program that it struck",
			"GPU 0 reported XID 79: fell off the bus",
		}
		var got []string
		for _, r := range n.told(state.RecordGPUError) {
			if r.Name != "train" || r.Key != c.Key() {
				t.Errorf("told of %q", r.Name)
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
		if told := len(n.told(state.RecordGPUError)); told < 5 || told > 7 {
			t.Errorf("told %d times in five minutes, want once a minute", told)
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

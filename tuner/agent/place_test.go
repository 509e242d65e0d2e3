package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/state"
)

// withDevices gives the host some GPUs.
func withDevices(n int) func(*Options) {
	return func(o *Options) {
		read := o.ReadHost
		o.ReadHost = func() (probes.Host, error) {
			h, err := read()
			for i := range n {
				h.Devices = append(h.Devices, probes.Device{Index: i, Minor: i, UUID: fmt.Sprintf("GPU-%04d", i), Name: "H100"})
			}
			return h, err
		}
	}
}

// place asks for a device for one job, and holds it.
func (d *daemon) place(t *testing.T) state.PlacedJob {
	t.Helper()
	got, err := d.Place(t.Context(), state.PlaceRequest{Jobs: []state.PlaceJob{{Image: "train"}}, Hold: true})
	if err != nil || len(got.Jobs) != 1 {
		t.Errorf("%+v, %v", got, err)
		return state.PlacedJob{}
	}
	return got.Jobs[0]
}

// TestPlacesAtOnceGetDifferentDevices: fifty at the same time, and eight devices.
func TestPlacesAtOnceGetDifferentDevices(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		const devices, asking = 8, 50
		d := n.start(withDevices(devices))
		defer d.end()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		chosen := make(chan string, asking)
		var all sync.WaitGroup
		for range asking {
			all.Go(func() {
				for _, uuid := range d.place(t).Chosen {
					chosen <- uuid
				}
			})
		}
		all.Wait()
		close(chosen)
		var got []string
		for uuid := range chosen {
			got = append(got, uuid)
		}
		slices.Sort(got)
		if len(got) != devices || len(slices.Compact(got)) != devices {
			t.Errorf("%d devices went to %v", devices, got)
		}
		time.Sleep(61 * time.Second)
		if j := d.place(t); len(j.Chosen) != 1 {
			t.Errorf("after a minute: %+v", j)
		}
	})
}

// TestHoldEndsWhereItsJobStarts: the device is then the container's, for as long as that runs.
func TestHoldEndsWhereItsJobStarts(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		d := n.start(withDevices(1))
		defer d.end()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		j := d.place(t)
		if len(j.Chosen) != 1 || j.HeldUntilUnix == 0 {
			t.Fatalf("%+v", j)
		}
		if again := d.place(t); len(again.Chosen) != 0 || again.Choices[0].Hold == nil || again.Choices[0].Hold.For != "train" {
			t.Errorf("asked again: %+v", again)
		}
		time.Sleep(2 * time.Second)
		if s := d.Snapshot(); len(s.Devices) != 1 || s.Devices[0].Hold == nil {
			t.Errorf("the hold is not shown: %+v", s.Devices)
		}
		c := n.engine.Add(runtime.Container{Name: "job", GPUs: j.Chosen, GPUVia: "device-requests"}, runtimetest.DefaultValues())
		time.Sleep(2 * time.Second)
		if s := d.Snapshot(); s.Devices[0].Hold != nil {
			t.Errorf("the hold stays: %+v", s.Devices[0].Hold)
		}
		if taken := d.place(t); len(taken.Chosen) != 0 || !slices.Equal(taken.Choices[0].Holders, []string{"job"}) {
			t.Errorf("while it runs: %+v", taken)
		}
		n.engine.Remove(c.ID.Container)
		time.Sleep(2 * time.Second)
		if free := d.place(t); len(free.Chosen) != 1 {
			t.Errorf("after it ended: %+v", free)
		}
	})
}

// TestUnreadableHostIsTold: a daemon that cannot read its host says so, and not that it starts.
func TestUnreadableHostIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		d := n.start(func(o *Options) {
			o.ReadHost = func() (probes.Host, error) { return probes.Host{}, errors.New("/proc/stat: no such file") }
		})
		time.Sleep(5 * time.Second)
		if p := d.Snapshot().Daemon.Probes; len(p) == 0 || p[0].OK || !strings.Contains(p[0].Lost, "/proc/stat") {
			t.Errorf("shown as %+v", p)
		}
		if _, err := d.Place(t.Context(), state.PlaceRequest{Jobs: []state.PlaceJob{{Image: "train"}}}); err == nil || !strings.Contains(err.Error(), "/proc/stat") {
			t.Errorf("a place is answered by %v", err)
		}
		d.stop(false)
	})
}

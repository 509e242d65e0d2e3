package rate

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
)

// dealEvery is the least time between two deals of the shares.
const dealEvery = 500 * time.Millisecond

// shares is the socket's filter, bpf/rate.bpf.c: what a container sends beyond its share takes
// no place in the queue. It is used from the probe's goroutine.
type shares struct {
	objs  objects
	rooms map[string]*room // by container
	dealt time.Time
	sent  uint64 // then, of all containers
	// refused then, likewise.
	refused uint64
	calm    bool // nobody flooded then
	tell    func(key, problem string)
}

// objects are of bpf/rate.bpf.c.
type objects struct {
	Rooms   *ebpf.Map      `ebpf:"rooms"`
	EveryNs *ebpf.Variable `ebpf:"every_ns"`
	Foreign *ebpf.Variable `ebpf:"foreign"`
	Refused *ebpf.Variable `ebpf:"refused"`
	Sent    *ebpf.Variable `ebpf:"sent"`
	Admit   *ebpf.Program  `ebpf:"admit"`
}

// room is what the kernel counted of one container at the latest deal.
type room struct {
	key           filterCgroupKey
	sent, refused uint64
	floods        bool
}

// newShares puts the filter on the socket.
func newShares(conn *net.UnixConn, v1 bool, tell func(key, problem string)) (*shares, error) {
	spec, err := bpf.Spec(_FilterBytes)
	if err != nil {
		return nil, err
	}
	if err := bpf.SetConstants(spec, map[string]any{"tasks_by_v1_cpu": v1}); err != nil {
		return nil, err
	}
	s := &shares{rooms: map[string]*room{}, dealt: time.Now(), calm: true, tell: tell}
	if err := spec.LoadAndAssign(&s.objs, nil); err != nil {
		return nil, fmt.Errorf("load: %w; needs Linux 5.15 with BTF, CAP_BPF and CAP_PERFMON", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var setErr error
		err = raw.Control(func(fd uintptr) {
			setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_BPF, s.objs.Admit.FD())
		})
		err = errors.Join(err, setErr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("filter the socket: %w", err), s.close())
	}
	return s, nil
}

// watch makes room for a container's datagrams; without it all are refused.
func (s *shares) watch(t probes.Target) error {
	r := &room{key: filterCgroupKey{Id: t.CgroupID}}
	if err := s.objs.Rooms.Put(r.key, filterRoom{}); err != nil {
		return fmt.Errorf("make room for its datagrams: %w", err)
	}
	s.rooms[t.Key] = r
	return nil
}

func (s *shares) unwatch(key string) {
	if r := s.rooms[key]; r != nil {
		// Absent is what is wanted.
		_ = s.objs.Rooms.Delete(r.key)
		delete(s.rooms, key)
	}
}

// totals are the datagrams so far: of containers, of these refused, and of nobody watched.
func (s *shares) totals() (sent, refused, foreign uint64, err error) {
	return sent, refused, foreign, errors.Join(s.objs.Sent.Get(&sent), s.objs.Refused.Get(&refused), s.objs.Foreign.Get(&foreign))
}

// deal gives each container its share of what the reader takes in a second, by what it sent
// since the latest deal.
func (s *shares) deal(now time.Time) error {
	seconds := now.Sub(s.dealt).Seconds()
	if seconds < dealEvery.Seconds() {
		return nil
	}
	sent, refused, _, err := s.totals()
	if err != nil {
		return fmt.Errorf("rate probe: read the filter: %w", err)
	}
	calm := refused == s.refused && float64(sent-s.sent) <= messagesPerS*seconds
	s.dealt, s.sent, s.refused = now, sent, refused
	first := s.calm // what was sent since the latest flood is no wish of this second
	if s.calm = calm; calm {
		for key, r := range s.rooms {
			s.flood(key, r, false)
		}
		return s.setLevel(perContainerPerS)
	}
	perS := make([]float64, 0, len(s.rooms))
	for key, r := range s.rooms {
		var v filterRoom
		if err := s.objs.Rooms.Lookup(r.key, &v); err != nil {
			continue // what cannot be read sends nothing either
		}
		perS = append(perS, float64(v.Sent-r.sent)/seconds)
		s.flood(key, r, v.Refused != r.refused) // none is refused while it is calm
		r.sent, r.refused = v.Sent, v.Refused
	}
	if first {
		return nil
	}
	return s.setLevel(min(perContainerPerS, level(perS, messagesPerS)))
}

func (s *shares) setLevel(perS float64) error {
	if err := s.objs.EveryNs.Set(uint64(1e9 / perS)); err != nil {
		return fmt.Errorf("rate probe: set the share of datagrams: %w", err)
	}
	return nil
}

func (s *shares) flood(key string, r *room, floods bool) {
	if r.floods == floods {
		return
	}
	r.floods = floods
	if floods {
		s.tell(key, fmt.Sprintf("more than its share of datagrams (%d a second, fewer where others flood as well): the surplus is not counted", perContainerPerS))
	} else {
		s.tell(key, "")
	}
}

// level divides total by max-min fairness: the largest figure to which each of the wishes can be
// cut so that they fit. +Inf: all fit whole.
func level(wishes []float64, total float64) float64 {
	slices.Sort(wishes)
	for i, wish := range wishes {
		if share := total / float64(len(wishes)-i); wish > share {
			return share
		}
		total -= wish
	}
	return math.Inf(1)
}

func (s *shares) close() error { return bpf.Close(&s.objs) }

// Package inputjson writes the input of a control step as JSON, the same bytes that encoding/json
// makes of it. The flight recorder writes every tick, and by reflection that would be the
// largest part of what the daemon spends beside many containers.
package inputjson

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/control"
)

// Input is a control step's input as the recorder takes it.
type Input struct{ control.Input }

// AppendJSON appends what json.Marshal makes of the input, byte for byte; a test
// holds it to that.
func (in Input) AppendJSON(b []byte) ([]byte, error) {
	e := encoder{b: append(b, '{')}
	e.key(`"unix":`)
	e.int(in.UnixNs)
	e.key(`"host":`)
	e.any(in.Host)
	e.key(`"containers":`)
	list(&e, in.Containers, (*encoder).container)
	e.key(`"samples":`)
	list(&e, in.Samples, (*encoder).sample)
	if len(in.Results) > 0 {
		e.key(`"results":`)
		e.any(in.Results)
	}
	e.text(`"frozen":`, in.Frozen)
	e.close()
	return e.b, e.err
}

// encoder appends JSON; the first failure stays.
type encoder struct {
	b   []byte
	err error
}

// key begins a field of an object; k is quoted and has its colon.
func (e *encoder) key(k string) {
	if e.b[len(e.b)-1] != '{' {
		e.b = append(e.b, ',')
	}
	e.b = append(e.b, k...)
}

func (e *encoder) open()  { e.b = append(e.b, '{') }
func (e *encoder) close() { e.b = append(e.b, '}') }

// any takes the slow way, for what is rare.
func (e *encoder) any(v any) {
	b, err := json.Marshal(v)
	if err != nil && e.err == nil {
		e.err = err
	}
	e.b = append(e.b, b...)
}

func (e *encoder) int(v int64)   { e.b = strconv.AppendInt(e.b, v, 10) }
func (e *encoder) uint(v uint64) { e.b = strconv.AppendUint(e.b, v, 10) }

func (e *encoder) float(v float64) {
	switch a := math.Abs(v); {
	case v != 0 && a < 1e15 && v == math.Trunc(v):
		e.int(int64(v))
	case a >= 1e-6 && a < 1e21:
		e.b = strconv.AppendFloat(e.b, v, 'f', -1, 64)
	default:
		e.any(v)
	}
}

// string quotes; what json would escape takes the slow way.
func (e *encoder) string(s string) {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			e.any(s)
			return
		}
	}
	e.b = append(e.b, '"')
	e.b = append(e.b, s...)
	e.b = append(e.b, '"')
}

// The following write a field unless it is empty.

func (e *encoder) text(key, s string) {
	if s != "" {
		e.key(key)
		e.string(s)
	}
}

func (e *encoder) flag(key string, v bool) {
	if v {
		e.key(key)
		e.b = append(e.b, "true"...)
	}
}

func (e *encoder) some(key string, v uint64) {
	if v != 0 {
		e.key(key)
		e.uint(v)
	}
}

func (e *encoder) someFloat(key string, v float64) {
	if v != 0 {
		e.key(key)
		e.float(v)
	}
}

func (e *encoder) texts(key string, all []string) {
	if len(all) > 0 {
		e.key(key)
		list(e, all, func(e *encoder, s *string) { e.string(*s) })
	}
}

func list[T any](e *encoder, all []T, each func(*encoder, *T)) {
	if all == nil {
		e.b = append(e.b, "null"...)
		return
	}
	e.b = append(e.b, '[')
	for i := range all {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		each(e, &all[i])
	}
	e.b = append(e.b, ']')
}

// table writes a map, sorted by key as json does.
func table[K, V ~string](e *encoder, m map[K]V) {
	if m == nil {
		e.b = append(e.b, "null"...)
		return
	}
	keys := make([]K, 0, 16)
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	e.open()
	for i, k := range keys {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.string(string(k))
		e.b = append(e.b, ':')
		e.string(string(m[k]))
	}
	e.close()
}

// FixedJSON is the part of a container's JSON that stays as long as the container is
// the same, for Container.Fixed: with a thousand containers, making it anew each tick
// was the larger half of writing one.
func FixedJSON(c runtime.Container) ([]byte, error) {
	e := encoder{b: []byte{'{'}}
	e.fixed(&c)
	return e.b[1:], e.err
}

func (e *encoder) container(c *control.Container) {
	e.open()
	if c.Fixed != nil {
		e.b = append(e.b, c.Fixed...)
	} else {
		e.fixed(&c.Container)
	}
	e.key(`"enrolment":`)
	e.enrolment(&c.Enrolment)
	e.key(`"watched":`)
	e.b = strconv.AppendBool(e.b, c.Watched)
	e.key(`"now":`)
	table(e, c.Now)
	if len(c.Original) > 0 {
		e.key(`"original":`)
		table(e, c.Original)
	}
	if len(c.Yielded) > 0 {
		e.key(`"yielded":`)
		list(e, c.Yielded, func(e *encoder, k *runtime.Knob) { e.string(string(*k)) })
	}
	e.flag(`"held":`, c.Held)
	e.text(`"owed":`, c.Pending)
	e.text(`"preflight":`, c.Preflight)
	e.flag(`"busy":`, c.Busy)
	if len(c.GPUVisibility) > 0 {
		e.key(`"sights":`)
		list(e, c.GPUVisibility, (*encoder).visibility)
	}
	e.flag(`"elastic":`, c.Elastic)
	e.close()
}

func (e *encoder) visibility(s *control.GPUVisibility) {
	e.open()
	e.key(`"minor":`)
	e.int(int64(s.Minor))
	e.text(`"uuid":`, s.UUID)
	e.flag(`"visible":`, s.Visible)
	e.text(`"hidden":`, string(s.Hidden))
	e.close()
}

// fixed writes the fields of the embedded container.
func (e *encoder) fixed(c *runtime.Container) {
	e.key(`"id":`)
	e.open()
	e.key(`"engine":`)
	e.string(c.ID.Engine)
	e.key(`"container":`)
	e.string(c.ID.Container)
	e.key(`"boot":`)
	e.string(c.ID.Boot)
	e.key(`"start":`)
	e.uint(c.ID.StartTick)
	e.close()
	e.key(`"name":`)
	e.string(c.Name)
	e.key(`"image":`)
	e.string(c.Image)
	if len(c.Labels) > 0 {
		e.key(`"labels":`)
		table(e, c.Labels)
	}
	e.key(`"state":`)
	e.string(string(c.State))
	e.key(`"initPID":`)
	e.int(int64(c.InitPID))
	e.key(`"cgroup":`)
	e.place(&c.Cgroup)
	e.texts(`"gpus":`, c.GPUs)
	e.text(`"gpuVia":`, c.GPUVia)
	e.flag(`"kubernetes":`, c.Kubernetes)
	if c.CreatedUnixNs != 0 {
		e.key(`"created":`)
		e.int(c.CreatedUnixNs)
	}
}

func (e *encoder) place(c *runtime.Cgroup) {
	e.open()
	e.key(`"mode":`)
	e.string(string(c.Mode))
	e.key(`"id":`)
	e.uint(c.ID)
	e.text(`"unified":`, c.Unified)
	if len(c.V1) > 0 {
		e.key(`"v1":`)
		table(e, c.V1)
	}
	e.close()
}

func (e *encoder) enrolment(n *policies.Enrolment) {
	e.open()
	e.key(`"mode":`)
	e.string(string(n.Mode))
	e.text(`"door":`, n.EnrolledBy)
	e.texts(`"knobs":`, n.Knobs)
	e.text(`"knobsFrom":`, n.KnobsFrom)
	e.bounds(`"cpu":`, n.CPU)
	e.bounds(`"memory":`, n.Memory)
	if n.Importance != 0 {
		e.key(`"importance":`)
		e.int(int64(n.Importance))
	}
	e.flag(`"bestEffort":`, n.BestEffort)
	e.text(`"loans":`, string(n.Loans))
	e.text(`"job":`, n.Job)
	e.text(`"team":`, n.Team)
	e.text(`"group":`, n.Group)
	e.someFloat(`"groupCPUs":`, n.GroupCPUs)
	e.texts(`"problems":`, n.Problems)
	e.text(`"whyNot":`, n.WhyNot)
	e.close()
}

func (e *encoder) bounds(key string, r policies.Range) {
	if r == (policies.Range{}) {
		return
	}
	e.key(key)
	e.open()
	e.someFloat(`"min":`, r.Min)
	e.someFloat(`"max":`, r.Max)
	e.close()
}

func (e *encoder) sample(s *probes.Sample) {
	e.open()
	e.key(`"container":`)
	e.string(s.Container)
	if s.Kernel != nil {
		e.key(`"kernel":`)
		e.kernel(s.Kernel)
	}
	if s.Cgroup != nil {
		e.key(`"cgroup":`)
		e.cgroup(s.Cgroup)
	}
	if s.CUDA != nil {
		e.key(`"cuda":`)
		e.any(s.CUDA)
	}
	if s.NCCL != nil {
		e.key(`"nccl":`)
		e.any(s.NCCL)
	}
	if s.MPI != nil {
		e.key(`"mpi":`)
		e.any(s.MPI)
	}
	if s.Network != nil {
		e.key(`"network":`)
		e.network(s.Network)
	}
	if len(s.Processes) > 0 {
		e.key(`"processes":`)
		e.any(s.Processes)
	}
	e.close()
}

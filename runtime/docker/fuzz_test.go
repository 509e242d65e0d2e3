package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// answering is an engine whose Docker gives the answer that is stored, whatever it is asked.
func answering(f *testing.F) (*Engine, *atomic.Pointer[[]byte]) {
	said := new(atomic.Pointer[[]byte])
	e := saying(f, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(*said.Load()) })
	e.host.ProcRoot = f.TempDir() // no process is there: what an engine says alone decides
	return e, said
}

// A user's engine says what it likes of a container. What is kept of it is bounded, and only of IDs that
// Docker gives; what it stores are values that the knobs can have.
func FuzzInspect(f *testing.F) {
	const begin = `{"Id":"0a1b","Name":"/train","Image":"sha256:00","State":{"Running":true,"Pid":7},`
	for _, s := range []string{
		begin + `"Config":{"Labels":{"trimtab.mode":"tune"},"Env":["A=b"],"Cmd":["python"]},"HostConfig":{"NanoCpus":1500000000,"Memory":1073741824,"MemorySwap":-1},"Mounts":[{"Name":"v","Destination":"/b"},{"Source":"/srv","Destination":"/a"}]}`,
		begin + `"Config":{"Env":["NVIDIA_VISIBLE_DEVICES=0,1"]},"HostConfig":{"Runtime":"nvidia","CpuQuota":50000,"CpuPeriod":-5,"CpuShares":2,"CpusetCpus":" 0-3 "}}`,
		begin + `"Config":{},"HostConfig":{"DeviceRequests":[{"Count":9223372036854775807,"Capabilities":[["gpu"]]},{"Driver":"cdi","DeviceIDs":["nvidia.com/gpu=all"]}],"NanoCpus":9223372036854775807}}`,
		begin + `"Config":{},"HostConfig":{"Devices":[{"PathOnHost":"/dev/nvidia0"},{"PathOnHost":"/dev/nvidiactl"}],"DeviceCgroupRules":["c 195:* rwm"],"NanoCpus":1,"Memory":1,"MemorySwap":9223372036854775807}}`,
		`{"Id":"../../etc","State":{"Running":true,"Pid":1},"Config":{},"HostConfig":{}}`, `{"Id":"user.slice","State":{"Running":true,"Pid":1,"Paused":true},"Config":{},"HostConfig":{}}`,
		`{"Id":"0a","State":{"Running":true,"Pid":-1}}`, `{"message":"no"}`, `null`, ``,
		begin + `"Config":{},"HostConfig":{"DeviceRequests":[{"Driver":"nvidia","DeviceIDs":["` + strings.Repeat("x", 129) + `"]}]}}`,
		strings.Replace(begin, "0a1b", strings.Repeat("0a", 32), 1) + `"Config":{},"HostConfig":{}}`, strings.Replace(begin, "0a1b", strings.Repeat("0", 65), 1) + `"Config":{},"HostConfig":{}}`,
	} {
		f.Add([]byte(s))
	}
	e, said := answering(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		said.Store(&b)
		c, err := e.inspect(t.Context(), "c0ffee")
		var info container.InspectResponse
		decoded := json.NewDecoder(bytes.NewReader(b)).Decode(&info) == nil // as the client: what follows an answer is nobody's
		plainID := len(info.ID) > 0 && len(info.ID) <= 64 && !strings.ContainsFunc(info.ID, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) })
		switch {
		case err == nil:
			t.Fatalf("a process that is not there is a container's: %+v", c)
		case errors.Is(err, engine.ErrNotBelieved) && decoded && plainID:
			t.Fatalf("ID %q is not believed", info.ID)
		case c.ID.Container != "" && (!decoded || !plainID || c.ID.Container != info.ID || c.InitPID != info.State.Pid || c.InitPID <= 0):
			t.Fatalf("%q is read as %+v", b, c)
		}
		ways := []string{"device-requests", "cdi", "legacy-hook", "devices"}
		if len(c.GPUs) > maxGPUs || (len(c.GPUs) == 0) != (c.GPUVia == "") || c.GPUVia != "" && !slices.Contains(ways, c.GPUVia) ||
			slices.ContainsFunc(c.GPUs, func(gpu string) bool { return len(gpu) > 128 }) {
			t.Fatalf("%d GPUs by %q: %q", len(c.GPUs), c.GPUVia, c.GPUs)
		}
		size := 0
		for key, value := range c.Labels {
			size += len(key) + len(value)
		}
		if len(c.Name) > 255 || len(c.Image) > 4096 || len(c.Labels) > 128 || size > 8<<10 {
			t.Fatalf("kept are %d bytes of a name, %d of an image's, %d of %d labels", len(c.Name), len(c.Image), size, len(c.Labels))
		}
		if decoded && info.HostConfig != nil {
			checkStored(t, info.HostConfig.Resources)
		}
	})
}

// checkStored: each value is one that its knob can have, and says what Docker does with the record.
func checkStored(t *testing.T, r container.Resources) {
	t.Helper()
	for _, mode := range []runtime.CgroupMode{runtime.CgroupV1, runtime.CgroupV2} {
		values := ownersValues(r, mode)
		quotaUs, periodUs, err := runtime.ParseQuota(values[runtime.KnobCPUQuota])
		if err != nil || r.NanoCPUs > 0 && (quotaUs > r.NanoCPUs || r.NanoCPUs >= 1e9 && quotaUs/periodUs != r.NanoCPUs/1e9) {
			t.Fatalf("%+v: a quota of %q, %v", r, values[runtime.KnobCPUQuota], err)
		}
		for _, knob := range []runtime.Knob{runtime.KnobCPUWeight, runtime.KnobMemoryLimit, runtime.KnobMemorySwap} {
			if n, ok := values[knob].Int(); values[knob] != "" && values[knob] != runtime.ValueMax && (!ok || n < 0) {
				t.Fatalf("%+v: %s is %q", r, knob, values[knob])
			}
		}
		if cpus, named := values[runtime.KnobCpuset]; named && strings.TrimSpace(string(cpus)) == "" {
			t.Fatalf("%+v: a cpuset of %q", r, cpus)
		}
	}
}

// Each event that is whole and names a container gives one notice of it, in order, up to what is no event.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		`{"Type":"container","Action":"start","Actor":{"ID":"0a","Attributes":{"image":"x"}},"time":1}` + "\n" + `{"Action":"update","Actor":{"ID":"0b"}}`,
		`{"Actor":{"ID":""}} {"Actor":{"ID":"0a"}}{"Actor":{"ID":7}}{"Actor":{"ID":"0c"}}`, `[]`, `{"Actor":{"ID":"../x"}`, "\x1e{}\n", `null`,
	} {
		f.Add([]byte(s))
	}
	e, said := answering(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var want, got []engine.Notice
		for d := json.NewDecoder(bytes.NewReader(b)); ; {
			var m events.Message
			if d.Decode(&m) != nil {
				break
			}
			if m.Actor.ID != "" {
				want = append(want, engine.Notice{Key: m.Actor.ID, Updated: m.Action == "update"})
			}
		}
		said.Store(&b)
		s, err := source{e}.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for failed := s.Failed(); failed != nil || len(got) < len(want); {
			select {
			case n := <-s.Notices():
				got = append(got, n)
			case <-failed:
				failed = nil // the last notice may be on its way
			case <-time.After(20 * time.Second):
				t.Fatalf("%q: %+v, and nothing more; want %+v", b, got, want)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q: %+v, want %+v", b, got, want)
		}
	})
}

// What a container logs comes out of Docker's pieces whole, in order and with nothing of their headers,
// up to what is no piece.
func FuzzLogs(f *testing.F) {
	for _, s := range []string{"\x01\x00\x00\x00\x00\x00\x00\x05step\n\x02\x00\x00\x00\x00\x00\x00\x01x", "\x01\x00\x00\x00\xff\xff\xff\xffcut", "\x00\x00\x00\x00\x00\x00\x00\x00", "\x03\x00\x00\x00", "no pieces"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var want []byte
		rest := b
		for len(rest) >= 8 && rest[0] <= 2 && rest[1] == 0 && rest[2] == 0 && rest[3] == 0 {
			size := int64(binary.BigEndian.Uint32(rest[4:]))
			rest = rest[8:]
			n := min(size, int64(len(rest)))
			want, rest = append(want, rest[:n]...), rest[n:]
		}
		got, err := io.ReadAll(bufio.NewReader(&demultiplexed{ReadCloser: io.NopCloser(bytes.NewReader(b))}))
		if !bytes.Equal(got, want) && !errors.Is(err, io.ErrNoProgress) || !bytes.HasPrefix(want, got) {
			t.Fatalf("%q holds %q, read is %q, %v", b, want, got, err)
		}
	})
}

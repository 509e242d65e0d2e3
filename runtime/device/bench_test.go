package device

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trimtab/trimtab/runtime"
)

// benchContainer has a v1 list with all of NVIDIA's nodes, or a program that says the same.
func benchContainer(b *testing.B, v1 bool) (runtime.Container, []runtime.DeviceRule) {
	b.Helper()
	had := rulesFrom(b, "c 195:0 rw", "c 195:1 rw", "c 195:255 rw", "c 509:0 rw", "c 509:1 rw")
	c := runtime.Container{Name: "c", GPUs: []string{"0", "1"}}
	if v1 {
		dir := b.TempDir()
		text := "b *:* m\nc *:* m\nc 1:3 rwm\nc 1:5 rwm\nc 1:7 rwm\nc 1:8 rwm\nc 1:9 rwm\nc 5:0 rwm\nc 5:1 rwm\nc 5:2 rwm\nc 136:* rwm\n"
		for _, r := range had {
			text += fmt.Sprintln(r)
		}
		if err := os.WriteFile(filepath.Join(dir, "devices.list"), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		c.Cgroup.V1 = map[string]string{"devices": dir}
		return c, had
	}
	dir, err := os.MkdirTemp("/sys/fs/cgroup/unified", "trimtab-test-")
	if err != nil {
		b.Skipf("needs root: and a cgroup2 tree: %v", err)
	}
	b.Cleanup(func() { os.Remove(dir) })
	attach(b, dir, runcLike(append(rulesFrom(b, "c *:* m", "c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm", "c 5:0 rwm", "c 136:* rwm"), had...)...))
	c.Cgroup.Unified = dir
	return c, had
}

func benchVisibility(b *testing.B) *Visibility {
	root := b.TempDir()
	if err := os.WriteFile(filepath.Join(root, "devices"), []byte("Character devices:\n195 nvidia-frontend\n509 nvidia-uvm\n\nBlock devices:\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	return NewVisibility(Options{ProcRoot: root})
}

// BenchmarkLook is what each second costs for each container that holds a GPU.
func BenchmarkLook(b *testing.B) {
	for name, v1 := range map[string]bool{"v1": true, "v2": false} {
		b.Run(name, func(b *testing.B) {
			v := benchVisibility(b)
			c, had := benchContainer(b, v1)
			for b.Loop() {
				if _, lost, err := v.Look(context.Background(), c, had); err != nil || len(lost) > 0 {
					b.Fatal(lost, err)
				}
			}
		})
		b.Run(name+"/changed", func(b *testing.B) {
			v := benchVisibility(b)
			c, had := benchContainer(b, v1)
			r, err := v.read(c)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, lost, err := r.judge(had); err != nil || len(lost) > 0 {
					b.Fatal(lost, err)
				}
			}
		})
	}
}

// BenchmarkDecide is one question to a program of a dozen rules.
func BenchmarkDecide(b *testing.B) {
	var rules []runtime.DeviceRule
	for minor := range 12 {
		rules = append(rules, runtime.DeviceRule{Kind: "c", Major: 195, Minor: minor, Access: "rw"})
	}
	program := resolved(b, asm.Instructions(runcLike(rules...)))
	for b.Loop() {
		if yes, err := decide(program, openRequest(195, 255)); yes || err != nil {
			b.Fatal(yes, err)
		}
	}
}

// BenchmarkTryOpen is a real open in a container's group on v1.
func BenchmarkTryOpen(b *testing.B) {
	dir, err := os.MkdirTemp("/sys/fs/cgroup/devices", "trimtab-test-")
	if err != nil {
		b.Skipf("needs root: and v1's devices controller: %v", err)
	}
	b.Cleanup(func() { os.Remove(dir) })
	c := runtime.Container{Name: "c", GPUs: []string{"0"}, Cgroup: runtime.Cgroup{V1: map[string]string{"devices": dir}}}
	for b.Loop() {
		if access, err := CheckAccess(context.Background(), c); access != AccessAllowed {
			b.Fatal(access, err)
		}
	}
}

package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
)

// packed runs bundle.sh in a tree of its own, where what compiles makes small files. tools are
// further stand-ins, by name.
func packed(t *testing.T, tools map[string]string) (dist, out string, err error) {
	t.Helper()
	for _, tool := range []string{"bash", "tar", "zstd", "flock"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bundle.sh", "train.py", "programs.py"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		put("test/gpucheck/"+name, string(text))
	}
	const makes = "#!/bin/sh\nset -eu\numask 077\n" // of whoever builds: nothing depends on it
	put("bin/go", makes+`while [ "$1" != -o ]; do shift; done; echo "$3" >"$2"; chmod 755 "$2"`+"\n")
	put("bin/make", makes+"mkdir -p test/vgpu/build; cd test/vgpu/build; for f in libcuda.so.1 libcudart.so.12 libnccl.so.2 libnvidia-ml.so.1 vgpu-node trainer plain; do echo $f >$f; done\n")
	put("scripts/build-nvml.sh", makes+`echo nvml >"$1"; chmod 755 "$1"`+"\n")
	put("scripts/build-runtimes.sh", makes+`mkdir -p "$1/bin"; d=$1; shift; for f; do echo $f >"$d/bin/$f"; done`+"\n")
	for _, tool := range []string{"gcc", "g++", "git"} {
		put("bin/"+tool, "#!/bin/sh\nexit 1\n")
	}
	for name, text := range tools {
		put("bin/"+name, text)
	}
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "test/gpucheck/bundle.sh"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
	text, err := cmd.CombinedOutput()
	return filepath.Join(root, "dist"), string(text), err
}

// TestBundleHasWhatTheCheckNeeds: what is packed, unpacked, is what the check looks for, and runs.
func TestBundleHasWhatTheCheckNeeds(t *testing.T) {
	dist, out, err := packed(t, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	there := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", there, "-xf", filepath.Join(dist, "gpu-check.tar.zst")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := map[string]fs.FileMode{"gpucheck": 0o755, "trimtab": 0o755, "trimtab-nvml": 0o755, "plain": 0o755, "train.py": 0o644, "programs.py": 0o644, "vgpu/vgpu-node": 0o755, "vgpu/trainer": 0o755}
	for _, name := range ctrd.Programs() {
		want[name] = 0o755
	}
	for _, lib := range []string{"libcuda.so.1", "libcudart.so.12", "libnccl.so.2", "libnvidia-ml.so.1"} {
		want["vgpu/"+lib] = 0o644
	}
	got := map[string]fs.FileMode{}
	unpacked := os.DirFS(filepath.Join(there, "gpu-check"))
	if err := fs.WalkDir(unpacked, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			got[path] = info.Mode()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
}

// TestBundleIsBounded: an archive above 48 MiB is an error.
func TestBundleIsBounded(t *testing.T) {
	for mib, fails := range map[int]bool{48: false, 49: true} {
		size := fmt.Sprintf("#!/bin/sh\ncat >/dev/null\nwhile [ \"$1\" != -o ]; do shift; done\ntruncate -s %dM \"$2\"\n", mib)
		if _, out, err := packed(t, map[string]string{"zstd": size}); (err != nil) != fails || strings.Contains(out, "is over 48 MiB") != fails {
			t.Errorf("%d MiB: %v\n%s", mib, err, out)
		}
	}
}

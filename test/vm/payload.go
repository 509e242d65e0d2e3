package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/trimtab/trimtab/test/built"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// Versions of the packages that are built: what is installed, and what upgrades it.
const (
	version = "1.0.0"
	newer   = "1.0.1"
)

// envRuntimes names the current runtimes, as scripts/build-runtimes.sh makes them, that
// TestEngines is to meet too; unset: Debian's alone.
const envRuntimes = "TRIMTAB_VM_RUNTIMES"

// build makes what the guest is given, below dir, and returns the archive that is its
// second disk.
func build(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	b := builder{ctx: ctx, repo: strings.TrimSpace(string(root)), dir: filepath.Join(dir, "payload")}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return "", err
	}
	b.run("go", "build", "-trimpath", "-o", b.at("inside"), "./test/vm/inside")
	if _, err := built.Trimtab(ctx, b.dir); b.err == nil {
		b.err = err
	}
	for _, in := range []string{"runtime/docker", "runtime/containerd", "test/crash", "probes/cgroup"} {
		b.run("go", "test", "-c", "-o", b.at(filepath.Base(in)+".test"), "./"+in)
	}
	if current := os.Getenv(envRuntimes); current != "" {
		b.run("cp", "-r", current, b.at("runtimes"))
	}
	b.packages()
	b.job()
	archive := filepath.Join(dir, "payload.tar")
	b.run("tar", "-C", b.dir, "--owner=0", "--group=0", "-cf", archive, ".")
	return archive, b.err
}

// builder does one thing after another, until one fails.
type builder struct {
	ctx       context.Context
	repo, dir string
	env       []string
	err       error
}

func (b *builder) at(name string) string { return filepath.Join(b.dir, name) }

func (b *builder) run(name string, args ...string) {
	if b.err != nil {
		return
	}
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Dir = b.repo
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), b.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
}

// packages are what scripts/package.sh makes, of two versions.
func (b *builder) packages() {
	bin := filepath.Join(b.dir, "..", "bin")
	b.run("bash", "-c", `GOBIN=$0 go install "$(sed -n 's/^nfpm_module=//p' scripts/package.sh)"`, bin)
	for _, v := range []string{version, newer} {
		out := filepath.Join(b.dir, "..", "packages-"+v)
		b.env = []string{"PACKAGE_VERSION=" + v, "NFPM=" + filepath.Join(bin, "nfpm")}
		b.run("scripts/package.sh", out, "amd64")
		b.run("cp", filepath.Join(out, "trimtab_"+v+"_amd64.deb"), b.at("trimtab-"+v+".deb"))
	}
	b.env = nil
}

// job makes the root of the containers: busybox, and the C++ trainer with the virtual
// GPU's libraries, whose calls the uprobes count; and what a daemon needs to see that GPU.
func (b *builder) job() {
	if b.err != nil {
		return
	}
	var libs vgpu.Dir
	if libs, b.err = gpu.Build(b.ctx); b.err != nil {
		return
	}
	b.run("mkdir", b.at("vgpu"))
	for _, file := range []string{"libcuda.so.1", "libnvidia-ml.so.1", "vgpu-node"} {
		b.run("cp", libs.Lib(file), b.at("vgpu"))
	}
	const script = `set -eu
root=$(mktemp -d); trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/etc" "$root/run" "$root/opt/trimtab-vgpu" "$root/lib64" "$root/lib/x86_64-linux-gnu"
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh sleep cat mknod head ls; do ln -s busybox "$root/bin/$applet"; done
cp "$0/trainer" "$root/bin/"
for lib in libcuda.so.1 libcudart.so.12 libnccl.so.2; do cp "$0/$lib" "$root/opt/trimtab-vgpu/"; done
LD_LIBRARY_PATH=$0 ldd "$0/trainer" "$0/libcuda.so.1" | awk '$3 ~ "^/lib" {print $3} $1 ~ "^/lib64/" {print $1}' | sort -u | while read -r lib; do cp -L "$lib" "$root$lib"; done
tar -C "$root" --owner=0 --group=0 -cf "$1" .`
	b.run("bash", "-c", script, string(libs), b.at("job.tar"))
}

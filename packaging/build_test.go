package packaging

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pathWithout is a folder for PATH that has all programs of this machine but those that a pattern fits.
func pathWithout(t *testing.T, pattern string) string {
	t.Helper()
	dir, but := t.TempDir(), regexp.MustCompile(pattern)
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		list, err := os.ReadDir(from)
		if err != nil {
			continue // PATH may name what is not there
		}
		for _, f := range list {
			if but.MatchString(f.Name()) {
				continue
			}
			if err := os.Symlink(filepath.Join(from, f.Name()), filepath.Join(dir, f.Name())); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestBuildWithoutCompiler: the daemon is built all the same, what is missing is named, and no child of
// an earlier build is left that would not fit it.
func TestBuildWithoutCompiler(t *testing.T) {
	if testing.Short() {
		t.Skip("builds trimtab: run without -short")
	}
	tool(t, "git", "apt-get install git")
	dir := t.TempDir()
	inFolder(t, "..", "git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -c | tar -C '"+dir+"' -x", true)
	old := filepath.Join(dir, "bin/trimtab-nvml")
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, []byte("of an earlier build"), 0o755); err != nil {
		t.Fatal(err)
	}
	without := pathWithout(t, `^(.*-)?(gcc|g\+\+|cc|c\+\+|c[89]9(-gcc)?|clang|clang\+\+|tcc)(-[0-9.]+)?$`)
	build := exec.Command("make", "--no-print-directory", "-C", dir, "build", "VERSION=1.2.3")
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PATH=") && !strings.HasPrefix(v, "CC=") {
			build.Env = append(build.Env, v)
		}
	}
	build.Env = append(build.Env, "PATH="+without)
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	for _, said := range []string{"gcc is missing", "apt-get install gcc libc6-dev", "reads no NVIDIA device"} {
		if strings.Count(string(out), said) != 1 {
			t.Errorf("make build does not say %q once:\n%s", said, out)
		}
	}
	if got := output(t, filepath.Join(dir, "bin/trimtab"), "version"); !strings.Contains(got, "1.2.3") {
		t.Errorf("the daemon says %q", got)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the child of an earlier build is left beside a new daemon: %v", err)
	}
}

// machineOf is what a program of a folder was built for.
func machineOf(t *testing.T, file string) elf.Machine {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Machine
}

// areFor checks both programs in a folder that was unpacked.
func areFor(t *testing.T, want elf.Machine, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if got := machineOf(t, program); got != want {
			t.Errorf("%s is for %v, want %v", filepath.Base(program), got, want)
		}
	}
}

// ofMachine: each kind of package of an architecture says so, and both programs in it are built for it.
func ofMachine(t *testing.T, built, arch, rpmArch string, want elf.Machine) {
	t.Run("deb", func(t *testing.T) {
		dpkg, dir := tool(t, "dpkg-deb", "a Debian host has it"), t.TempDir()
		output(t, dpkg, "-x", one(t, filepath.Join(built, "*_"+arch+".deb")), dir)
		areFor(t, want, filepath.Join(dir, "usr/bin/trimtab"), filepath.Join(dir, "usr/libexec/trimtab/trimtab-nvml"))
	})
	t.Run("tarball", func(t *testing.T) {
		dir := t.TempDir()
		output(t, "tar", "-C", dir, "--strip-components=1", "-xzf", one(t, filepath.Join(built, "*-linux-"+arch+".tar.gz")))
		areFor(t, want, filepath.Join(dir, "bin/trimtab"), filepath.Join(dir, "bin/trimtab-nvml"))
	})
	t.Run("rpm", func(t *testing.T) {
		rpm, file := tool(t, "rpm", "apt-get install rpm"), one(t, filepath.Join(built, "*."+rpmArch+".rpm"))
		if got := output(t, rpm, "-qp", "--queryformat", "%{ARCH}", file); got != rpmArch {
			t.Errorf("the package is for %q", got)
		}
		if os.Geteuid() != 0 {
			t.Skip("needs root: rpm gives files to root")
		}
		dir := t.TempDir()
		output(t, rpm, "--root="+dir, "--dbpath=/var/lib/rpm", "--install", "--force-debian", "--nodeps", "--noscripts", "--ignorearch", file)
		areFor(t, want, filepath.Join(dir, "usr/bin/trimtab"), filepath.Join(dir, "usr/libexec/trimtab/trimtab-nvml"))
	})
}

// Package runtimetest helps to test what runs on container engines: a fake engine
// in memory, one conformance suite for all engines, and a small image with
// containers that clean up after themselves for tests on a real Docker. Only
// tests import it.
package runtimetest

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ImageName is the image that DockerHost's containers run: busybox and nothing else.
const ImageName = "trimtab-test-busybox"

// DockerHost drives a real Docker by its command line, as a person would.
type DockerHost struct {
	// Host is the value of docker's -H; "": the default.
	Host string
}

// NeedDocker returns the host's own Docker with the test image in it, or skips the test.
func NeedDocker(t testing.TB) DockerHost {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs Docker: and root to read its containers' control groups")
	}
	if _, err := exec.LookPath("docker"); err != nil {
		t.Skip("needs Docker: no docker command")
	}
	var h DockerHost
	if out, err := h.try(nil, "version", "--format", "{{.Server.Version}}"); err != nil {
		t.Skipf("needs Docker: %s", out)
	}
	h.NeedImage(t)
	return h
}

// NeedImage makes the test image unless it is there, or skips the test.
func (h DockerHost) NeedImage(t testing.TB) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), ImageName+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil { // other packages' tests
		t.Fatal(err)
	}
	if _, err := h.try(nil, "image", "inspect", ImageName); err == nil {
		return
	}
	rootfs, err := busyboxRoot()
	if err != nil {
		t.Skipf("needs Docker: and a static busybox for its test image (Debian: busybox-static): %v", err)
	}
	if out, err := h.try(rootfs, "import", "-", ImageName); err != nil {
		t.Fatalf("docker import: %v: %s", err, out)
	}
}

// Start runs a container of the test image, named trimtab-test-…, that sleeps, and
// removes it when the test ends. args are those of docker run; returns its full ID.
func (h DockerHost) Start(t testing.TB, args ...string) (id string) {
	t.Helper()
	return h.StartCommand(t, args, "sleep", "1000000")
}

// StartCommand is Start with a command instead of sleeping.
func (h DockerHost) StartCommand(t testing.TB, args []string, command ...string) (id string) {
	t.Helper()
	name := fmt.Sprintf("trimtab-test-%08x", rand.Uint32())
	t.Cleanup(func() { h.Remove(t, name) })
	run := append([]string{"run", "-d", "--net=none", "--name", name}, args...)
	return h.Run(t, append(append(run, ImageName), command...)...)
}

// Run runs a docker command and returns its trimmed output; a failure fails the test.
func (h DockerHost) Run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := h.try(nil, args...)
	if err != nil {
		t.Fatalf("docker %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// Remove removes a container, running or not, there or not.
func (h DockerHost) Remove(t testing.TB, name string) {
	t.Helper()
	if out, err := h.try(nil, "rm", "-f", "-v", name); err != nil && !strings.Contains(out, "No such container") {
		t.Errorf("docker rm %s: %v: %s", name, err, out)
	}
}

// try returns standard output; on failure what was said on standard error.
func (h DockerHost) try(stdin io.Reader, args ...string) (string, error) {
	if h.Host != "" {
		args = append([]string{"-H", h.Host}, args...)
	}
	cmd := exec.Command("docker", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return strings.TrimSpace(stderr.String()), err
	}
	return strings.TrimSpace(stdout.String()), nil
}

// busyboxRoot makes the archive of a root file system from the host's busybox.
func busyboxRoot() (io.Reader, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	if err := checkStatic(path); err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	write := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	for _, dir := range []string{"bin/", "tmp/", "root/", "etc/"} {
		write(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	write(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, binary)
	for _, applet := range []string{"sh", "sleep", "cat", "dd", "ls", "ln", "rm", "mkdir", "mknod", "true", "yes", "echo", "kill", "nproc"} {
		write(tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
	}
	if err == nil {
		err = w.Close()
	}
	return &out, err
}

func checkStatic(path string) error {
	file, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically", path)
		}
	}
	return nil
}

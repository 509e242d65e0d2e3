// Package vm boots a Debian guest with systemd, Docker and cgroup v2, installs
// trimtab's package in it as a user would, and checks on it what trimtab promises of
// a host with systemd (`make test-vm`).
package vm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// An ordinary kernel hangs early under some hosts' KVM: this is how long it gets to
	// reach its init program before emulation takes its place.
	kvmPatience  = 10 * time.Second
	bootPatience = 5 * time.Minute
	hangPatience = 3 * time.Minute
	kernelRuns   = "trimtab-vm: the kernel runs" // image.sh's initrd prints it
)

// needless are modules for what a guest finds and has no use for: under emulation each
// takes a second or more to load.
const needless = "kvm_amd,kvm_intel,kvm,ata_piix,ata_generic,libata,aesni_intel,ghash_clmulni_intel,crc32_pclmul,crct10dif_pclmul,powernow_k8,acpi_cpufreq,psmouse,evdev,button,i2c_piix4,floppy,sr_mod,cdrom"

// Guest is a running virtual machine. It is for one goroutine.
type Guest struct {
	// Accel is "kvm" or "tcg", emulation.
	Accel string

	dir, url string
	cmd      *exec.Cmd
	ended    chan struct{}
	boot     string                // its boot ID
	hangs    atomic.Pointer[error] // since it hangs: how that was found
}

// Outcome is how a script in the guest ended.
type Outcome struct {
	Code   int    `json:"code"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// Image makes the guest's disk, unless it is in the folder cache, and returns the folder to boot.
func Image(ctx context.Context, cache string) (string, error) {
	cmd := exec.CommandContext(ctx, "./image.sh") // beside this file
	cmd.Env = append(os.Environ(), "TRIMTAB_CACHE="+cache)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("image.sh: %w\n%s", err, &said)
	}
	return strings.TrimSpace(string(out)), nil
}

// emulator is which QEMU emulates the guest of an image.
func emulator(ctx context.Context, image string) string {
	out, err := exec.CommandContext(ctx, filepath.Join(image, "qemu"), "--version").Output()
	if err != nil {
		return err.Error()
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// Boot boots image.sh's folder with a disk that is the archive payload, and waits until
// the guest answers. What it writes is gone with it. dir gets its console's log. kernel
// is added to the kernel's command line.
func Boot(ctx context.Context, image, payload, dir, kernel string) (*Guest, error) {
	if kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		_ = kvm.Close()
		g, err := boot(ctx, "qemu-system-x86_64", image, payload, dir, kernel, "kvm", "host")
		if err != nil {
			return nil, err
		}
		if g.reaches(ctx, kernelRuns, kvmPatience) {
			return g, g.Wait(ctx)
		}
		g.Close()
	}
	g, err := boot(ctx, filepath.Join(image, "qemu"), image, payload, dir, kernel, "tcg,thread=multi", "max")
	if err != nil {
		return nil, err
	}
	return g, g.Wait(ctx)
}

func boot(ctx context.Context, qemu, image, payload, dir, kernel, accel, cpu string) (*Guest, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(accel, ",")
	g := &Guest{Accel: name, dir: dir, url: fmt.Sprintf("http://127.0.0.1:%d", port), ended: make(chan struct{})}
	_ = os.Remove(g.console())
	g.cmd = exec.Command(qemu, "-accel", accel, "-cpu", cpu, "-smp", "2,sockets=2", "-m", "2048",
		"-object", "memory-backend-ram,id=m0,size=1G", "-numa", "node,cpus=0,memdev=m0", "-object", "memory-backend-ram,id=m1,size=1G", "-numa", "node,cpus=1,memdev=m1",
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", filepath.Join(image, "vmlinuz"), "-initrd", filepath.Join(image, "initrd"),
		"-append", "console=ttyS0 root=/dev/vda rw net.ifnames=0 mitigations=off systemd.show_status=false "+speaks+" modprobe.blacklist="+needless+" "+kernel,
		"-drive", "if=virtio,format=raw,snapshot=on,file="+filepath.Join(image, "root.ext4"),
		"-drive", "if=virtio,format=raw,readonly=on,file="+payload,
		"-netdev", fmt.Sprintf("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:%d-:8080", port), "-device", "virtio-net-pci,netdev=net,romfile=",
		"-device", "virtio-rng-pci", "-serial", "file:"+g.console(), "-qmp", "unix:"+g.monitor()+",server=on,wait=off")
	var said bytes.Buffer
	g.cmd.Stderr = &said
	g.cmd.Env = append(os.Environ(), "TMPDIR="+dir) // its writes
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("qemu: %w", err)
	}
	go func() {
		defer close(g.ended)
		if err := g.cmd.Wait(); err != nil && said.Len() > 0 {
			_ = os.WriteFile(filepath.Join(dir, "qemu.log"), said.Bytes(), 0o644) // for whoever looks why
		}
	}()
	return g, nil
}

func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (g *Guest) console() string { return filepath.Join(g.dir, "console.log") }

// reaches waits for a text on the console.
func (g *Guest) reaches(ctx context.Context, text string, patience time.Duration) bool {
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if log, err := os.ReadFile(g.console()); err == nil && bytes.Contains(log, []byte(text)) {
			return true
		}
	}
	return false
}

// Wait waits for a boot that is not the one before.
func (g *Guest) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()
	for {
		if id, err := g.ask(ctx, http.MethodGet, "/boot", ""); err == nil && string(id) != g.boot {
			g.boot = string(id)
			return nil
		}
		select {
		case <-g.ended:
			said, _ := os.ReadFile(filepath.Join(g.dir, "qemu.log"))
			return fmt.Errorf("the guest ended: %s\n%s", said, g.Tail())
		case <-ctx.Done():
			return fmt.Errorf("the guest does not answer: %w\n%s", ctx.Err(), g.autopsy(context.WithoutCancel(ctx)))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Tail is the end of its console.
func (g *Guest) Tail() string {
	log, _ := os.ReadFile(g.console())
	return string(log[max(0, len(log)-3000):])
}

// Run runs a shell script as root; an error means that it could not be run, or that the
// guest hangs.
func (g *Guest) Run(ctx context.Context, script string) (o Outcome, err error) {
	if hangs := g.hangs.Load(); hangs != nil {
		return o, *hangs
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go g.guard(ctx, cancel)
	answer, err := g.ask(ctx, http.MethodPost, "/run", script)
	if err != nil {
		return o, fmt.Errorf("guest: %w", cmp.Or(context.Cause(ctx), err))
	}
	if err := json.Unmarshal(answer, &o); err != nil {
		return o, fmt.Errorf("guest: %w: %.200s", err, answer)
	}
	return o, nil
}

// guard cancels what waits for a guest that has not answered for long: a kernel that
// hangs would be waited for until all tests' time is over.
func (g *Guest) guard(ctx context.Context, cancel context.CancelCauseFunc) {
	for answered := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
		if _, err := g.ask(ctx, http.MethodGet, "/boot", ""); err == nil {
			answered = time.Now()
		} else if time.Since(answered) > hangPatience {
			hangs := fmt.Errorf("the guest has not answered for %s: %w\n%s", hangPatience, err, g.autopsy(ctx))
			if ctx.Err() != nil { // it did, meanwhile
				return
			}
			g.hangs.Store(&hangs)
			cancel(hangs)
			return
		}
	}
}

func (g *Guest) ask(ctx context.Context, method, path, body string) ([]byte, error) {
	if path == "/boot" { // one that does not answer is asked again
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
	}
	r, err := http.NewRequestWithContext(ctx, method, g.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Close = true // a connection does not outlive a reboot
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return data, err
}

// Close ends the guest.
func (g *Guest) Close() {
	if g.cmd == nil { // another's: see Attach
		return
	}
	_ = g.cmd.Process.Kill() // it may have ended by itself
	<-g.ended
}

// Attach is a guest that an earlier run left running.
func Attach(ctx context.Context, url string) (*Guest, error) {
	g := &Guest{Accel: "kept", url: url, ended: make(chan struct{})}
	return g, g.Wait(ctx)
}

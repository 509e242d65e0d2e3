package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// opens opens nodes as a process that the container starts would. No driver is there: what
// the group allows gives ENXIO, what it does not EPERM.
func opens(pid string, nodes []string) error {
	if err := enter(pid); err != nil {
		return err
	}
	for _, node := range nodes {
		fmt.Println(open(node))
	}
	return nil
}

// enter enters the control group of a container's process that bounds devices, and its
// root, as a process that the container starts has them.
func enter(pid string) error {
	text, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return err
	}
	group := ""
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case slices.Contains(strings.Split(fields[1], ","), "devices"): // v1's
			group = "/sys/fs/cgroup/devices" + fields[2]
		case fields[1] == "" && group == "":
			group = "/sys/fs/cgroup" + fields[2]
		}
	}
	if err := os.WriteFile(group+"/cgroup.procs", []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return err
	}
	if err := syscall.Chroot("/proc/" + pid + "/root"); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return nil
}

func open(node string) string {
	file, err := os.Open(node)
	switch {
	case errors.Is(err, syscall.ENXIO):
		return "open"
	case errors.Is(err, syscall.EPERM):
		return "refused"
	case errors.Is(err, os.ErrNotExist):
		return "gone"
	case err != nil:
		return err.Error()
	}
	_ = file.Close() // nothing was written
	return "a device answers"
}

// watch says what comes of opening a node, whenever that changes, until nobody listens.
func watch(pid, node string) error {
	if err := enter(pid); err != nil {
		return err
	}
	for last := ""; ; time.Sleep(5 * time.Millisecond) {
		now := open(node)
		if now == last {
			continue
		}
		if _, err := fmt.Println(now); err != nil {
			return err
		}
		last = now
	}
}

// patience is how long a reload may take to be followed by what it does.
const patience = time.Minute

// reload makes systemd reload, and says for how long that took a node from a container.
func reload(pid, node string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	watcher := exec.Command(self, "watch", pid, node)
	watcher.Stderr = os.Stderr
	out, err := watcher.StdoutPipe()
	if err != nil {
		return err
	}
	if err := watcher.Start(); err != nil {
		return err
	}
	defer func() {
		_ = watcher.Process.Kill() // it runs until then
		_ = watcher.Wait()
	}()
	type change struct {
		to string
		at time.Time // as it was heard of, whatever else goes on
	}
	changes := make(chan change, 8)
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			changes <- change{scanner.Text(), time.Now()}
		}
	}()
	became := func(want string) (at time.Time, err error) {
		select {
		case got := <-changes:
			if got.to != want {
				return at, fmt.Errorf("%s is %s, not %s", node, got.to, want)
			}
			return got.at, nil
		case <-time.After(patience):
			return at, fmt.Errorf("%s did not become %s within %s", node, want, patience)
		}
	}
	if _, err := became("open"); err != nil {
		return err
	}
	began := time.Now()
	if said, err := exec.Command("systemctl", "daemon-reload").CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl daemon-reload: %w: %s", err, said)
	}
	reloaded := time.Now()
	lost, err := became("refused")
	if err != nil {
		return err
	}
	healed, err := became("open")
	if err != nil {
		return err
	}
	fmt.Printf("a daemon-reload of %d ms took the node %d ms after it began; it was refused for %d ms\n",
		reloaded.Sub(began).Milliseconds(), lost.Sub(began).Milliseconds(), healed.Sub(lost).Milliseconds())
	return nil
}

// rulesOf prints v1's list, or the code of a group's device programs.
func rulesOf(dir string) error {
	list, err := os.ReadFile(filepath.Join(dir, "devices.list"))
	if err != nil {
		return programsOf(dir)
	}
	rules := strings.Split(strings.TrimSpace(string(list)), "\n")
	slices.Sort(rules)
	fmt.Println(strings.Join(rules, "\n"))
	return nil
}

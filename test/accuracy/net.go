package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// makeNetwork makes a bridge network for one job and says how a container joins it.
func makeNetwork(ctx context.Context, name string) (args []string, remove func() error, err error) {
	_ = exec.CommandContext(ctx, "docker", "network", "rm", name).Run() // what a killed run left
	if err := command(ctx, "docker", "network", "create", name); err != nil {
		return nil, nil, err
	}
	remove = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return command(ctx, "docker", "network", "rm", name)
	}
	return []string{"--network", name}, remove, nil
}

// shape bounds what reaches a container with a token bucket at the host's end of its
// veth pair, where an operator shapes too. The bucket holds 64 KiB: a few milliseconds,
// less than a step sends.
func shape(ctx context.Context, w *workload.Job, mbit int) error {
	pid, err := w.PID(ctx)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(pid), "--net", "ip", "-o", "link", "show", "eth0").Output()
	if err != nil {
		return fmt.Errorf("its interface: %w", err)
	}
	_, rest, _ := strings.Cut(string(out), "eth0@if")
	number, _, ok := strings.Cut(rest, ":")
	index, err := strconv.Atoi(number)
	if !ok || err != nil {
		return fmt.Errorf("its interface is no veth: %q", out)
	}
	peer, err := net.InterfaceByIndex(index)
	if err != nil {
		return fmt.Errorf("the host's end of its veth: %w", err)
	}
	return command(ctx, "tc", "qdisc", "add", "dev", peer.Name, "root", "tbf", "rate", strconv.Itoa(mbit)+"mbit", "burst", "64kb", "latency", "200ms")
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/vgpu"
)

// part is one section of the check.
type part struct {
	name, title string
	run         func(*check, context.Context) error
}

// parts in the order in which they run.
//
//trimtab:table the sections of the check
var parts = []part{
	{"nvml", "What NVML and GPM answer", (*check).nvml},
	{"jobs", "Symbols, verdicts and device activity of jobs", (*check).jobs},
	{"launches", "Launches against another count", (*check).launches},
	{"rate", "The job's rate with and without trimtab", (*check).rate},
	{"tuning", "A starved loader, by its quota", (*check).tuning},
	{"programs", "Other people's programs, starved by their quota", (*check).others},
	{"access", "Device hide and show", (*check).access},
}

func partNames() string {
	names := make([]string, 0, len(parts))
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

func checkParts(only string) error {
	for name := range strings.SplitSeq(only, ",") {
		if name != "" && !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("-only %q: there are %s", name, partNames())
		}
	}
	return nil
}

// check is one run.
type check struct {
	o       options
	report  report
	site    *site
	tmp     string // in memory, gone at the end
	saves   string // on disk: checkpoints
	root    string // of containers
	log     *os.File
	node    *vgpu.Node // nil: a real device
	shm     string
	started int
}

func newCheck(ctx context.Context, o options) (c *check, err error) {
	c = &check{o: o, report: report{virtual: o.virtual, short: o.short, out: os.Stdout}}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.tmp, err = os.MkdirTemp("/run", "trimtab-gpucheck-"); err != nil {
		return c, err
	}
	if c.saves, err = os.MkdirTemp("/var/tmp", "trimtab-gpucheck-"); err != nil {
		return c, err
	}
	if c.log, err = openLog(c.tmp); err != nil {
		return c, err
	}
	if err := controlGroups(); err != nil {
		return c, err
	}
	if o.virtual {
		if err := c.makeNode(ctx); err != nil {
			return c, err
		}
	}
	c.root = filepath.Join(c.tmp, "root")
	if err := rootFS(c.root); err != nil {
		return c, err
	}
	dir := filepath.Join(c.tmp, "containerd")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return c, err
	}
	c.site, err = newSite(ctx, dir, o.dir, slog.New(slog.NewTextHandler(c.log, nil)))
	return c, err
}

// makeNode makes the virtual node, and makes this process and its children see it.
func (c *check) makeNode(ctx context.Context) (err error) {
	if c.shm, err = os.MkdirTemp("/dev/shm", "trimtab-gpucheck-"); err != nil {
		return err
	}
	c.node, err = vgpu.NewNode(ctx, vgpu.Dir(filepath.Join(c.o.dir, "vgpu")), c.shm, vgpu.Options{Devices: 1, Spec: "hopper=1"})
	if err != nil {
		return err
	}
	for _, kv := range c.node.Env() {
		key, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	return nil
}

// close removes what was made. The mounts go with this process's namespace.
func (c *check) close() {
	if c.site != nil {
		if err := c.site.close(); err != nil {
			fmt.Fprintln(os.Stderr, "gpu-check: containerd's end:", err)
		}
	}
	if c.log != nil {
		_ = c.log.Close()
	}
	// What cannot be removed, such as the root that is still mounted, is in memory and of no harm.
	if c.tmp != "" && c.root != "" {
		_ = detach(c.root)
		_ = os.Remove(c.root)
	}
	removeGroups()
	for _, dir := range []string{c.saves, c.shm} {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	if c.tmp != "" && !exists(filepath.Join(c.tmp, "root", "etc")) { // never through a mount of /
		_ = os.RemoveAll(c.tmp)
	}
}

// all runs the parts, prints the table, and returns the exit status.
func (c *check) all(ctx context.Context) int {
	c.machine(ctx)
	for _, p := range parts {
		if c.o.only != "" && !slices.Contains(strings.Split(c.o.only, ","), p.name) {
			c.report.left = append(c.report.left, p.name)
			continue
		}
		c.report.section(p.title)
		began := time.Now()
		if err := p.run(c, ctx); err != nil {
			c.report.row(bad, p.name, "the part runs to its end", "", err.Error())
			if errors.Is(err, context.Canceled) {
				break
			}
		}
		c.report.say("(%.0f s)", time.Since(began).Seconds())
	}
	problems := c.report.finish()
	if problems > 0 {
		c.tailLog()
	}
	if c.o.report != "" {
		if err := c.report.keep(c.o.report); err != nil {
			fmt.Fprintln(os.Stderr, "gpu-check:", err)
			return exitProblems
		}
	}
	if problems > 0 {
		return exitProblems
	}
	return 0
}

// tailLog shows trimtab's own log, the end of it.
func (c *check) tailLog() {
	text, err := os.ReadFile(c.log.Name())
	if err != nil {
		return
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	fmt.Println("\ntrimtab's log, its end:")
	for _, l := range lines[max(0, len(lines)-40):] {
		fmt.Println("  " + l)
	}
}

// pick returns the length for a full or a short run.
func (c *check) pick(full, short time.Duration) time.Duration {
	if c.o.short {
		return short
	}
	return full
}

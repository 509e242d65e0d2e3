package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
)

const (
	// reclaimRounds bounds what is asked for at once and how often: a tenth of what is
	// charged, so that no write waits long, until a job that reads faster than the kernel
	// frees shows that it does.
	reclaimRounds = 30
	reclaimShare  = 10
	// leastReclaim is the least asked for at once.
	leastReclaim = 1 << 20
)

// Reclaim has the kernel free memory of a v2 control group down to so many bytes, which
// kills nothing, unlike a limit set below what is used. ok is false where the kernel has
// no memory.reclaim (before 5.19). What could not be freed is no error: the caller looks
// at what it asks of the group next.
func Reclaim(ctx context.Context, cg runtime.Cgroup, to int64) (ok bool, err error) {
	if cg.Mode != runtime.CgroupV2 || cg.Unified == "" {
		return false, nil
	}
	path := filepath.Join(cg.Unified, "memory.reclaim")
	// Not os.OpenFile: its poller would wait for ever after EAGAIN, which says here that
	// less was freed than asked for.
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	for range reclaimRounds {
		current, err := readAmount(filepath.Join(cg.Unified, "memory.current"))
		if err != nil || current <= to || ctx.Err() != nil {
			return true, errors.Join(err, ctx.Err())
		}
		ask := min(current-to, max(current/reclaimShare, leastReclaim))
		_, err = unix.Write(fd, []byte(strconv.FormatInt(ask, 10)))
		switch {
		case err == nil, errors.Is(err, unix.EINTR): // the Go runtime's own signals
		case errors.Is(err, unix.EAGAIN):
			return true, nil
		default:
			return true, fmt.Errorf("write %s: %w", path, err)
		}
	}
	return true, nil
}

// Unfreeable is what of a v2 control group's memory the kernel cannot free without swap or
// a kill, in bytes: anonymous and shared memory, or what is locked, if that is more.
func Unfreeable(cg runtime.Cgroup) (int64, error) {
	path := filepath.Join(cg.Unified, "memory.stat")
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	found := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "anon" && name != "shmem" && name != "unevictable" {
			continue
		}
		if found[name], err = strconv.ParseInt(text, 10, 64); err != nil {
			return 0, fmt.Errorf("%s: %s: %w", path, name, err)
		}
	}
	if _, ok := found["anon"]; !ok {
		return 0, fmt.Errorf("%s: no line says how much is anonymous", path)
	}
	return max(found["anon"]+found["shmem"], found["unevictable"]), nil
}

func readAmount(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

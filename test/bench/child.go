package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The benchmark runs itself in containers as these.
const (
	childPrefix = "child-"
	childStorm  = childPrefix + "storm" // DELAY TIME: a storm of context switches; prints a stormResult
	childIdle   = childPrefix + "idle"  // EVERY: wakes so often for about half a millisecond of work; 0: sleeps
	childHold   = childPrefix + "hold"  // ADDRESS FROM COUNT: holds connections; on the host, as another user
)

func child(name string, args []string) error {
	if name == childHold && len(args) == 3 {
		count, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return hold(args[0], args[1], count)
	}
	var ds []time.Duration
	for _, a := range args {
		d, err := time.ParseDuration(a)
		if err != nil {
			return err
		}
		ds = append(ds, d)
	}
	switch {
	case name == childStorm && len(ds) == 2:
		time.Sleep(ds[0])
		r, err := pingPong(ds[1])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	case name == childIdle && len(ds) == 1:
		idle(ds[0])
	}
	return fmt.Errorf("%s %v: no such child", name, args)
}

func idle(every time.Duration) {
	for {
		if every == 0 {
			time.Sleep(time.Hour)
			continue
		}
		time.Sleep(every)
		for end := time.Now().Add(500 * time.Microsecond); time.Now().Before(end); {
		}
	}
}

// stormResult is what a storm counted.
type stormResult struct {
	Switches int64 `json:"switches"`
	Ns       int64 `json:"ns"` // wall
}

func (r stormResult) nsPerSwitch() float64 { return float64(r.Ns) / float64(r.Switches) }

// checkEvery is how many rounds pass between looks at the clock.
const checkEvery = 256

// pingPong hands a byte between two threads pinned to one CPU: two switches a
// round. Raw system calls keep Go's scheduler out of it.
func pingPong(d time.Duration) (stormResult, error) {
	debug.SetGCPercent(-1)
	var there, back [2]int
	if err := errors.Join(syscall.Pipe(there[:]), syscall.Pipe(back[:])); err != nil {
		return stormResult{}, err
	}
	other := make(chan error, 1)
	go func() {
		if err := pin(); err != nil {
			other <- err
			return
		}
		other <- nil
		for buf := [1]byte{}; transfer(unix.SYS_READ, there[0], &buf) && transfer(unix.SYS_WRITE, back[1], &buf); {
		}
		_ = syscall.Close(back[1]) // ends the other side's read
	}()
	if err := errors.Join(<-other, pin()); err != nil {
		return stormResult{}, err
	}
	var r stormResult
	buf := [1]byte{'x'}
	start := time.Now()
	for end := start.Add(d); time.Now().Before(end); {
		for range checkEvery {
			if !transfer(unix.SYS_WRITE, there[1], &buf) || !transfer(unix.SYS_READ, back[0], &buf) {
				return r, errors.New("the storm's other thread ended")
			}
		}
		r.Switches += 2 * checkEvery
	}
	r.Ns = time.Since(start).Nanoseconds()
	return r, syscall.Close(there[1])
}

// pin keeps this goroutine on a thread of its own, and that on the first CPU
// that the container may use.
func pin() error {
	goruntime.LockOSThread()
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	for cpu := range 8 * int(unsafe.Sizeof(may)) {
		if may.IsSet(cpu) {
			one.Set(cpu)
			return unix.SchedSetaffinity(0, &one)
		}
	}
	return errors.New("no CPU to run on")
}

func transfer(call uintptr, fd int, buf *[1]byte) bool {
	for {
		n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(buf)), 1)
		if errno != unix.EINTR { // Go interrupts threads that run long
			return errno == 0 && n == 1
		}
	}
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// What this program does as a container's: its first argument.
const (
	childStep   = "job-step"   // CPU milliseconds, then idle milliseconds, by two workers
	childWorker = "job-worker" // one of them
	childBomb   = "job-bomb"   // processes without end
	childHoard  = "job-hoard"  // so many MiB, touched again and again
	childRead   = "job-read"   // a file of so many MiB, read again and again
)

// asChild runs what a container is started for; it returns where this is none.
func asChild(args []string) {
	if len(args) < 2 {
		return
	}
	var err error
	switch args[1] {
	case childStep:
		err = stepJob(args[2:])
	case childWorker:
		err = stepWorker(args[2:])
	case childBomb:
		bomb()
	case childHoard:
		err = hoard(args[2:])
	case childRead:
		err = reread(args[2:])
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// workers is how many processes a job has beside its init.
const workers = 2

// stepJob is a job's init: it waits for its workers, which never end by themselves.
func stepJob(args []string) error {
	var all []*exec.Cmd
	for range workers {
		cmd := exec.Command("/proc/self/exe", append([]string{childWorker}, args...)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		all = append(all, cmd)
	}
	var errs []error
	for _, cmd := range all {
		errs = append(errs, cmd.Wait())
	}
	return errors.Join(errs...)
}

// stepWorker uses so many milliseconds of CPU, then waits for so many.
func stepWorker(args []string) error {
	if len(args) != 2 {
		return errors.New("want CPU_MS IDLE_MS")
	}
	busy, errBusy := strconv.Atoi(args[0])
	idle, errIdle := strconv.Atoi(args[1])
	if err := errors.Join(errBusy, errIdle); err != nil {
		return err
	}
	for {
		used, err := workload.ProcessCPU(os.Getpid())
		if err != nil {
			return err
		}
		for now := used; now < used+time.Duration(busy)*time.Millisecond; {
			for x := 0; x < 1<<15; x++ {
				_ = x * x
			}
			if now, err = workload.ProcessCPU(os.Getpid()); err != nil {
				return err
			}
		}
		time.Sleep(time.Duration(idle) * time.Millisecond)
	}
}

// bomb starts itself twice, again and again. A pids limit bounds it.
func bomb() {
	for {
		for range 2 {
			_ = exec.Command("/proc/self/exe", childBomb).Start() // refused, beyond the limit
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// reread reads a file that its container's memory limit does not hold, some 40 MiB/s of it.
func reread(args []string) error {
	if len(args) != 1 {
		return errors.New("want MIB")
	}
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	file, err := os.Create("/tmp/data")
	if err != nil {
		return err
	}
	block := make([]byte, 4<<20)
	for range mib / 4 {
		// Each block at once: on a slow disk more would not be written back than the limit holds, and the kernel
		// could kill it for that.
		if _, err := file.Write(block); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
	}
	for at := int64(0); ; at = (at + int64(len(block))) % (int64(mib) << 20) {
		if _, err := file.ReadAt(block, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// hoard holds memory up to its container's limit, so that the kernel reclaims.
func hoard(args []string) error {
	if len(args) != 1 {
		return errors.New("want MIB")
	}
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	const page, block = 4096, 1 << 20
	var held [][]byte
	for {
		if len(held) < mib {
			held = append(held, make([]byte, block))
		}
		for _, b := range held {
			for i := 0; i < len(b); i += page {
				b[i]++
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

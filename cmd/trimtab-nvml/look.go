//go:build cgo

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// A folder of the loader's may be on another machine that does not answer. Who looks at it may wait
// in the kernel for good, whatever signal comes, and a process cannot execute anew while a thread of
// its does. So another process looks, says each path before it touches it, and is left behind where it hangs.
const (
	lookFlag  = "--look"        // its first argument; then the library, LD_LIBRARY_PATH, and paths to leave out
	lookTime  = 5 * time.Second // for one path; a machine that is short of memory may take seconds
	maxSilent = 3               // paths that are found not to answer: with more the daemon would give up first

	saysLooking, saysFolder, saysFile, saysDone = '?', 'd', 'f', '.'
)

// found is what the loader may open, and what of it does not answer.
type found struct {
	folders, files []string
	silent         []string
}

// lookAll finds what is there for a library. What is known to be silent is not touched. The parent is told
// who is left behind.
func lookAll(library string, known []string, patience time.Duration, parent io.Writer) (f found, err error) {
	for f.silent = slices.Clone(known); len(f.silent)-len(known) <= maxSilent; {
		var at string
		if f.folders, f.files, at, err = lookOnce(library, f.silent, patience, parent); at == "" || err != nil {
			return f, err
		}
		f.silent = append(f.silent, at)
	}
	return f, fmt.Errorf("the loader's folders do not answer: %s", strings.Join(f.silent, ", "))
}

// lookOnce has a process look. at is where it hung.
func lookOnce(library string, silent []string, patience time.Duration, parent io.Writer) (folders, files []string, at string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, "", err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, "", err
	}
	defer r.Close()
	cmd := exec.Command(self, append([]string{lookFlag, library, os.Getenv(wire.LibraryPath)}, silent...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, wire.LibraryPath+"=") }) // its own loader is not to hang
	cmd.Stdout = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return nil, nil, "", fmt.Errorf("look at the loader's folders: %w", err)
	}
	lines := bufio.NewReader(r)
	for {
		limit := patience
		if at == "" {
			limit = lookTime // it is being started
		}
		if err := r.SetReadDeadline(time.Now().Add(limit)); err != nil {
			return nil, nil, "", err
		}
		line, err := lines.ReadString('\n')
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && at != "":
			return nil, nil, at, leave(cmd.Process, at, parent)
		case err != nil:
			return nil, nil, "", fmt.Errorf("look at the loader's folders, after %q: %w", at, errors.Join(err, leave(cmd.Process, at, parent)))
		}
		switch path := strings.TrimSuffix(line[1:], "\n"); line[0] {
		case saysLooking:
			at = path
		case saysFolder:
			folders = append(folders, path)
		case saysFile:
			files = append(files, path)
		case saysDone:
			return folders, files, "", cmd.Wait()
		}
	}
}

// leave kills a process that is not waited for: where it hangs no signal ends it. So the parent is told.
func leave(p *os.Process, at string, parent io.Writer) error {
	pid := int32(p.Pid)                        //nolint:gosec // the kernel's are below 2^22
	stat, err := procfs.ReadStat("/proc", pid) // nobody waits for it, so the PID is its own
	_ = p.Kill()
	if err != nil {
		return err
	}
	return wire.WriteLine(parent, wire.Answer{Left: &wire.Left{PID: pid, StartTick: stat.StartTick, At: cut(at)}})
}

// looker is what that process says to its parent, and who is not to be touched.
type looker struct {
	out    io.Writer
	silent []string
}

// may says a path before it is touched; false: it is not to be.
func (l looker) may(path string) bool {
	if slices.Contains(l.silent, path) || strings.Contains(path, "\n") {
		return false
	}
	l.say(saysLooking, path)
	return true
}

func (l looker) say(what rune, path string) {
	if _, err := fmt.Fprintf(l.out, "%c%s\n", what, path); err != nil {
		os.Exit(1) // the parent is gone
	}
}

// lookFor is that process, by its arguments; it returns where this is none.
func lookFor(args []string) {
	if len(args) < 4 || args[1] != lookFlag {
		return
	}
	look(looker{out: os.Stdout, silent: args[4:]}, args[2], args[3])
	os.Exit(0)
}

// look says which folders there are, and where the library is: a link in one of them, or a path that
// was given, may lead out of them.
func look(l looker, library, searched string) {
	folders := libraryFolders(searched, l.may)
	candidates := []string{library}
	if !strings.Contains(library, "/") {
		candidates = candidates[:0]
		for _, dir := range folders {
			candidates = append(candidates, filepath.Join(dir, library))
		}
	}
	for _, dir := range folders {
		l.say(saysFolder, dir)
	}
	for _, file := range candidates {
		if !l.may(file) {
			continue
		}
		if _, err := os.Stat(file); err == nil {
			l.say(saysFile, file)
		}
	}
	l.say(saysDone, "")
}

// keepFiles has what this process executes inherit the page and the pipe of the parent's, or not: one
// that is left behind is not to hold them.
func keepFiles(keep bool) {
	for _, fd := range []uintptr{wire.PageFD, wire.AnswerFD} {
		flag := unix.FD_CLOEXEC
		if keep {
			flag = 0
		}
		_, _ = unix.FcntlInt(fd, unix.F_SETFD, flag) // they are open (startedByParent)
	}
}

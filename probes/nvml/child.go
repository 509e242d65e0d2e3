package nvml

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// ChildCommand is the subcommand under which the binary is its own NVML child.
const ChildCommand = "nvml-child"

const (
	libraryFlag = "--library="
	pageFD      = 3 // the shared page
	answerFD    = 4 // answers; standard output is left to the library
)

// Child is the child's main: it loads the library, answers requests that come as
// lines on standard input, and ends with it. It returns the exit code.
func Child(args []string) int {
	path := defaultLibrary
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, libraryFlag); ok {
			path = v
		}
	}
	if err := childMain(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childMain(path string) error {
	if !startedByParent() {
		return fmt.Errorf("%s is started by trimtab alone: use `trimtab doctor`", ChildCommand)
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // a driver's crash needs no file of ours
	unix.CloseOnExec(pageFD)
	unix.CloseOnExec(answerFD)
	p, err := openPage(pageFD)
	if err != nil {
		return err
	}
	requests := make(chan request)
	go func() {
		defer close(requests)
		readRequests(os.Stdin, requests)
		os.Exit(0) // the parent is gone or done; a call that hangs shall not keep us
	}()
	goruntime.LockOSThread() // the library's thread-local state stays in one place
	return serve(path, p, requests, os.NewFile(answerFD, "answers"))
}

// startedByParent: the two files are what a parent hands over.
func startedByParent() bool {
	var shared, pipe unix.Stat_t
	return unix.Fstat(pageFD, &shared) == nil && shared.Size == pageBytes &&
		unix.Fstat(answerFD, &pipe) == nil && pipe.Mode&unix.S_IFMT == unix.S_IFIFO
}

func readRequests(r io.Reader, into chan<- request) {
	for lines := newLines(r); lines.Scan(); {
		var q request
		if json.Unmarshal(lines.Bytes(), &q) != nil {
			return
		}
		into <- q
	}
}

// serve opens the library at the first request, which says what to leave out, and
// answers until there are no more.
func serve(path string, p *page, requests <-chan request, out io.Writer) error {
	var s *session
	for q := range requests {
		if s == nil {
			var why *failure
			if s, why = openSession(path, p, q); why != nil {
				return writeLine(out, answer{Failed: why})
			}
			if err := writeLine(out, answer{Hello: &s.hello}); err != nil {
				return err
			}
		}
		if err := s.answer(q, out); err != nil {
			return err
		}
	}
	return nil
}

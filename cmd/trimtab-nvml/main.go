//go:build cgo

// Command trimtab-nvml reads NVIDIA devices for the trimtab daemon, which starts it and alone
// knows its protocol (probes/nvml/wire). It calls libnvidia-ml.so.1 by NVIDIA's own bindings,
// linked so that each function is looked for when it is first called.
//
// A process of its own, since a call that hangs can be ended only with its process, and one whose
// symbol the driver lacks ends it: both cost readings of that device and nothing else. Each call is
// looked up before it is made, and its name is told by the shared page, so that the daemon can name
// what hung and ask the next child to leave it out. It holds no privilege, and reaches no other
// process and no socket (confine), and no file but the library's own (confineFiles).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/nvml/wire"
)

func main() {
	lookFor(os.Args)
	goruntime.LockOSThread() // the library's thread-local state stays in one place
	if err := childMain(strings.TrimPrefix(os.Args[len(os.Args)-1], wire.LibraryFlag)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func childMain(path string) error {
	if !startedByParent() {
		return errors.New("trimtab-nvml is started by trimtab alone: use `trimtab doctor`")
	}
	answers := os.NewFile(wire.AnswerFD, "answers")
	rules := confineFiles(path, answers)
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // a driver's crash needs no file of ours
	unix.CloseOnExec(wire.PageFD)
	unix.CloseOnExec(wire.AnswerFD)
	p, err := wire.OpenPage(wire.PageFD)
	if err != nil {
		return err
	}
	requests := make(chan wire.Request)
	go func() {
		defer close(requests)
		readRequests(os.Stdin, requests)
		os.Exit(0) // the parent is gone or done; a call that hangs shall not keep us
	}()
	return serve(path, rules, p, requests, answers)
}

// startedByParent: the two files are what a parent hands over.
func startedByParent() bool {
	var shared, pipe unix.Stat_t
	return unix.Fstat(wire.PageFD, &shared) == nil && shared.Size == wire.PageBytes &&
		unix.Fstat(wire.AnswerFD, &pipe) == nil && pipe.Mode&unix.S_IFMT == unix.S_IFIFO
}

func readRequests(r io.Reader, into chan<- wire.Request) {
	for lines := wire.NewLines(r); lines.Scan(); {
		var q wire.Request
		if json.Unmarshal(lines.Bytes(), &q) != nil {
			return
		}
		into <- q
	}
}

// serve opens the library at the first request, which says what to leave out, and
// answers until there are no more.
func serve(path string, rules fileRules, p *wire.Page, requests <-chan wire.Request, out io.Writer) error {
	var s *session
	for q := range requests {
		if s == nil {
			var why *wire.Failure
			if s, why = openSession(path, rules, p, q); why != nil {
				return wire.WriteLine(out, wire.Answer{Failed: why})
			}
			if err := wire.WriteLine(out, wire.Answer{Hello: &s.hello}); err != nil {
				return err
			}
		}
		if err := s.answer(q, out); err != nil {
			return err
		}
	}
	return nil
}

// Command inside runs in the guest of `make test-vm`: as root it carries out what
// the tests outside ask for, and does to device rules what NVIDIA's hook does.
//
//	inside serve                 answers POST /run on port 8080: a shell script in, outcome out
//	inside hook CGROUP           allows a group "c 195:* rw", behind systemd's back
//	inside rules CGROUP          prints which devices the kernel lets it open, systemd's own program apart
//	inside opens PID NODE…       opens nodes as a new process of a container would, and says what came of it
//	inside watch PID NODE        does so again and again, and says what changes
//	inside hear PORT FILE        listens on 127.0.0.1 and writes down what it is sent, a line of JSON each
//	inside steps N               sends N steps a second, as a job that counts its own
//	inside reload PID NODE       makes systemd reload, and says for how long that took a node from a container
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Outcome is how a script ended.
type Outcome struct {
	Code   int    `json:"code"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = serve()
	case len(os.Args) == 3 && os.Args[1] == "hook":
		err = hook(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "rules":
		err = rulesOf(os.Args[2])
	case len(os.Args) >= 4 && os.Args[1] == "opens":
		err = opens(os.Args[2], os.Args[3:])
	case len(os.Args) == 4 && os.Args[1] == "watch":
		err = watch(os.Args[2], os.Args[3])
	case len(os.Args) == 4 && os.Args[1] == "hear":
		err = hear(os.Args[2], os.Args[3])
	case len(os.Args) == 3 && os.Args[1] == "steps":
		err = steps(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "reload":
		err = reload(os.Args[2], os.Args[3])
	default:
		err = fmt.Errorf("usage: inside serve | hook CGROUP | rules CGROUP | opens PID NODE… | watch PID NODE | hear PORT FILE | steps N | reload PID NODE")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers on the guest's only network, which is a user-mode one of the emulator's.
func serve() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	http.HandleFunc("GET /boot", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.TrimSpace(boot)) })
	http.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		script, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(run(r, string(script)))
	})
	return http.ListenAndServe(":8080", nil)
}

// run is ended, with all that it started in its group, when whoever asked goes away.
func run(r *http.Request, script string) Outcome {
	cmd := exec.CommandContext(r.Context(), "/bin/bash", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second // what it left in the background may hold its output
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "HOME=/root", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return Outcome{Code: 127, Stderr: err.Error()}
	}
	return Outcome{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

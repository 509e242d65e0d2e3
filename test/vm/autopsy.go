package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// envLogs names the folder where console, journal and an autopsy go.
const envLogs = "TRIMTAB_VM_LOGS"

// speaks makes a guest's kernel print every processor's stack when it gets an NMI that
// nobody else wants, and keeps its symbols where the kernel's file has them.
const speaks = "nokaslr unknown_nmi_panic panic_print=0x40"

func (g *Guest) monitor() string { return filepath.Join(g.dir, "monitor") }

// autopsy says where the processors of a guest that hangs are: by the emulator, which sees
// them whatever they do, and by the guest's kernel, which panics of it. It ends the guest
// for every use but this.
func (g *Guest) autopsy(ctx context.Context) string {
	if g.cmd == nil { // another's: see Attach
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var told strings.Builder
	for range 3 { // a loop is seen by where it is each time
		told.WriteString(g.command(ctx, "info registers -a") + "\n")
	}
	at := regexp.MustCompile(`(?m)^(CPU#\d+|RIP=.*|R[SB]P=.*|CR3=.*)`).FindAllString(told.String(), -1)
	if dir := os.Getenv(envLogs); dir != "" {
		_ = os.WriteFile(filepath.Join(dir, "processors"), []byte(told.String()+g.command(ctx, "info cpus")), 0o644)
	}
	before, _ := os.ReadFile(g.console())
	failed := g.command(ctx, "nmi")
	select {
	case <-time.After(20 * time.Second): // emulated, a stack takes a second
	case <-ctx.Done():
	}
	after, _ := os.ReadFile(g.console())
	return fmt.Sprintf("%s\nits console said of an NMI%s:\n%.12000s", strings.Join(at, "\n"), failed, after[min(len(before), len(after)):]) + "\nand before:\n" + string(before[max(0, len(before)-3000):])
}

// command has the emulator carry out a command of its monitor, and returns what it prints.
func (g *Guest) command(ctx context.Context, line string) string {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", g.monitor())
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintf(conn, `{"execute": "qmp_capabilities"} {"execute": "human-monitor-command", "arguments": {"command-line": %q}}`, line); err != nil {
		return err.Error()
	}
	for answers := json.NewDecoder(conn); ; {
		var answer struct{ Return any } // of the capabilities an object; events have none
		if err := answers.Decode(&answer); err != nil {
			return err.Error()
		}
		if printed, ok := answer.Return.(string); ok {
			return strings.ReplaceAll(printed, "\r", "")
		}
	}
}

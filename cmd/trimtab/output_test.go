package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/state"
)

// hostileNames are of containers that others made: escapes of 7 and 8 bits, another line, a
// description, another direction of writing, a broken one, an option, a command.
func hostileNames() []string {
	return []string{"a\x1b[2J", "a\u009b2J", "a\x7f", "a\nb", "a\tb", "a\u202eb", "a\U000e0001b", "a\xffb", "--all", "$(reboot)", "a b", "", "é"}
}

// hostileDaemon is a daemon with containers of these names.
type hostileDaemon struct {
	fake
	names []string
}

func (d hostileDaemon) Snapshot() *state.Snapshot {
	s := *d.fake.Snapshot()
	first := s.Containers[0]
	s.Containers = nil
	for _, name := range d.names {
		first.Name = name
		s.Containers = append(s.Containers, first)
	}
	return &s
}

// TestCompletionGivesUp: on a daemon that takes questions and never answers.
func TestCompletionGivesUp(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "t.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the test has ended
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := &cobra.Command{}
	cmd.Flags().String("socket", socket, "")
	cmd.SetContext(ctx)
	for name, complete := range map[string]func() ([]string, cobra.ShellCompDirective){
		"names":    func() ([]string, cobra.ShellCompDirective) { return completeNames(cmd, nil, "") },
		"devices":  func() ([]string, cobra.ShellCompDirective) { return completeNameAndDevices(cmd, []string{"train"}, "") },
		"profiles": func() ([]string, cobra.ShellCompDirective) { return completeProfiles(cmd, nil, "") },
	} {
		t.Run(name, func(t *testing.T) {
			got, directive := complete()
			if len(got) != 0 || directive != cobra.ShellCompDirectiveNoFileComp {
				t.Errorf("offered %q, %v", got, directive)
			}
			if ctx.Err() != nil {
				t.Error("it waited for the daemon")
			}
		})
	}
}

func TestCompletedNamesAreClean(t *testing.T) {
	good := []string{"train", "compose-web-1", "a.b_c-D9", "0f"}
	socket := filepath.Join(t.TempDir(), "t.sock")
	l, err := api.Listen(socket, api.Groups{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	daemon := hostileDaemon{names: slices.Concat(hostileNames(), good)}
	go func() { ended <- api.NewServer(daemon, slog.New(slog.DiscardHandler), time.Now).Run(ctx, l) }()
	t.Cleanup(func() { cancel(); <-ended })
	cmd := &cobra.Command{}
	cmd.Flags().String("socket", socket, "")
	cmd.SetContext(t.Context())
	got, directive := completeNames(cmd, nil, "")
	slices.Sort(got)
	slices.Sort(good)
	if diff := cmp.Diff(good, got); diff != "" || directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("directive %v; offered (-want +got):\n%s", directive, diff)
	}
}

// TestJSONIsPrintable: whatever a text holds, the terminal only shows it, and it reads back as it was.
func TestJSONIsPrintable(t *testing.T) {
	for _, text := range append(hostileNames(), "plain <&> \"text\"\\ über", "\u2028\u00a0\U0001f600") {
		var out bytes.Buffer
		if err := writeJSON(&out, map[string]string{"name": text}); err != nil {
			t.Fatal(err)
		}
		if at := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("%q: printed as %q", text, out.String())
		}
		var back map[string]string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["name"] != strings.ToValidUTF8(text, "\ufffd") {
			t.Errorf("%q: read back as %q, %v", text, back, err)
		}
	}
}

// TestHintOfDaemonThatHangs: it names the log, and what can be done without an answer.
func TestHintOfDaemonThatHangs(t *testing.T) {
	e := withHint(fmt.Errorf("%w in 35s", client.ErrNoAnswer))
	for _, want := range []string{"`journalctl -u trimtab`", "`trimtab record --flight FILE`", "`trimtab restore --offline`"} {
		if !strings.Contains(e.Hint, want) || e.Text != "the trimtab daemon has not answered in 35s" {
			t.Errorf("%q, without %s: %q", e.Text, want, e.Hint)
		}
	}
}

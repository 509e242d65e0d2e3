// Command trimtab is the daemon and the operator's tool in one binary. This
// package turns flags into calls; internal/render makes what is shown.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/config"
)

func main() {
	symbols.ChildMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, newRoot(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// newRoot is the visible list of subcommands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "trimtab",
		Short:         "Moves CPU and memory to where they shorten training steps most, proves it, and puts everything back",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().String("socket", config.Default().API.Socket, "where the daemon listens")
	root.PersistentFlags().String("output", outputTable, "table or json; csv of a report")
	_ = root.RegisterFlagCompletionFunc("output", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return outputsOf(cmd), cobra.ShellCompDirectiveNoFileComp
	}) // fails if asked twice
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return checkOutput(cmd) }
	root.AddCommand(psCommand(), topCommand(), explainCommand(), adviceCommand(), historyCommand(), reportCommand(), statusCommand(), enableCommand(), disableCommand(),
		restoreCommand(), resumeCommand(), pauseCommand(), apiCommand(), configCommand(), versionCommand(),
		daemonCommand(), doctorCommand(), gpuCommand(), profilesCommand(), placeCommand(), recordCommand(), replayCommand(),
		formerly("fingerprints", "profiles", profilesCommand()), formerly("idle", "gpu idle", idleCommand()))
	root.AddCommand(manCommands()...)
	return root
}

// formerly is a command under its name of the version before, for one release. The hint goes to
// standard error: what scripts read stays as it was.
func formerly(was, is string, cmd *cobra.Command) *cobra.Command {
	cmd.Hidden = true
	_, use, _ := strings.Cut(cmd.Use, " ")
	cmd.Use = strings.TrimSpace(was + " " + use)
	for _, c := range append(cmd.Commands(), cmd) {
		run := c.RunE
		if run == nil {
			continue
		}
		c.RunE = func(c *cobra.Command, args []string) error {
			now := is + strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" "+was)
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "trimtab %s is `trimtab %s` now; the old name ends with the next release\n", was, now)
			return run(c, args)
		}
	}
	return cmd
}

// exitError ends the process with a code of its own; err may be nil if everything
// has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit %d: %v", e.code, e.err) }

func (e *exitError) Unwrap() error { return e.err }

// execute is main without the process: it returns the exit code.
func execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	exit := &exitError{code: 1, err: err}
	errors.As(err, &exit)
	if exit.err != nil {
		report(cmd, stderr, exit.err)
	}
	return exit.code
}

// report says what went wrong and what to do about it.
func report(cmd *cobra.Command, stderr io.Writer, err error) {
	e := withHint(err)
	if format, _ := cmd.Flags().GetString("output"); format == outputJSON {
		_ = writeJSON(stderr, e) // there is nowhere else to say it
		return
	}
	_, _ = fmt.Fprintf(stderr, "trimtab: %s\n", cleanLines(e.Text))
	if e.Hint != "" {
		_, _ = fmt.Fprintf(stderr, "  hint: %s\n", cleanLines(e.Hint))
	}
}

// cleanLines is a text of several lines, without what moves a cursor: errors name containers and files.
func cleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = render.Clean(line)
	}
	return strings.Join(lines, "\n")
}

// withHint is an error and what to do about it, where that is known.
func withHint(err error) *api.Error {
	e := &api.Error{Text: err.Error()}
	errors.As(err, &e)
	if errors.Is(err, client.ErrNoDaemon) {
		e.Hint = "`systemctl start trimtab` starts it, `journalctl -u trimtab` tells why it ended, " +
			"`trimtab restore --offline` gives limits back without it"
	}
	if errors.Is(err, client.ErrNoAnswer) {
		e.Hint = "`journalctl -u trimtab` tells what it waits for, `trimtab record --flight FILE` saves what it last saw, " +
			"and after `systemctl stop trimtab`, `trimtab restore --offline` gives limits back without it"
	}
	return e
}

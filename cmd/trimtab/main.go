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
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/state"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, newRoot(wired()), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// wiring is what needs the daemon's parts, and stands in files of its own.
type wiring struct {
	commands []*cobra.Command
	// restoreOffline gives originals back without a daemon; no names: of every container.
	restoreOffline func(cmd *cobra.Command, names []string) ([]state.ActionResult, error)
}

// newRoot is the visible list of subcommands.
func newRoot(w wiring) *cobra.Command {
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
		restoreCommand(w), resumeCommand(), pauseCommand(), apiCommand(), configCommand(), versionCommand())
	root.AddCommand(manCommands()...)
	root.AddCommand(w.commands...)
	return root
}

// exitError ends the process with a code of its own; err may be nil if everything
// has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

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
	_, _ = fmt.Fprintf(stderr, "trimtab: %s\n", e.Text)
	if e.Hint != "" {
		_, _ = fmt.Fprintf(stderr, "  hint: %s\n", e.Hint)
	}
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

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/state"
)

func enableCommand() *cobra.Command {
	cmd := enrolCommand(&cobra.Command{
		Use:   "enable {NAME | --image GLOB | --compose PROJECT}",
		Short: "Let trimtab tune containers that run already, within what the host's config allows",
		Example: "  trimtab enable train --for 2h\n" +
			"  trimtab enable --image 'registry.example.com/vision/*' --knobs cpu,memory",
	}, (*client.Client).Enable)
	cmd.Flags().StringSlice("knobs", nil, "what may be changed: cpu, cpuset, memory, gpu (default cpu)")
	_ = cmd.RegisterFlagCompletionFunc("knobs", cobra.FixedCompletions(runtime.Families(), cobra.ShellCompDirectiveNoFileComp)) // fails if asked twice
	cmd.Flags().String("for", "", "for how long, such as 2h or 7d (default: until disabled)")
	return cmd
}

func disableCommand() *cobra.Command {
	return enrolCommand(&cobra.Command{
		Use:   "disable {NAME | --image GLOB | --compose PROJECT}",
		Short: "Give containers their own values back and only observe them, whatever their labels ask",
	}, (*client.Client).Disable)
}

// enrolCommand lets a command name one container or several, for what the daemon is asked about them.
func enrolCommand(cmd *cobra.Command, ask func(*client.Client, context.Context, state.EnableRequest) ([]state.ActionResult, error)) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cobra.MaximumNArgs(1), completeNames
	cmd.Flags().String("image", "", "all whose image fits; * and ? are wildcards")
	cmd.Flags().String("compose", "", "all of a compose project")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := enableRequest(cmd, args)
		if err != nil {
			return err
		}
		results, err := ask(daemonClient(cmd), cmd.Context(), req)
		return showResults(cmd, results, err)
	}
	return cmd
}

func enableRequest(cmd *cobra.Command, args []string) (req state.EnableRequest, err error) {
	req.Name = nameOf(args)
	req.Image, _ = cmd.Flags().GetString("image")
	req.Compose, _ = cmd.Flags().GetString("compose")
	named := slices.DeleteFunc([]string{req.Name, req.Image, req.Compose}, func(s string) bool { return s == "" })
	if len(named) != 1 {
		return req, fmt.Errorf("name exactly one: a container, --image GLOB or --compose PROJECT")
	}
	req.Knobs, _ = cmd.Flags().GetStringSlice("knobs") // disable has no such flags
	if text, _ := cmd.Flags().GetString("for"); text != "" {
		d, err := config.ParseDuration(text)
		if err != nil || d <= 0 {
			return req, fmt.Errorf("--for %q: allowed are times above 0, such as 90m, 2h or 7d", text)
		}
		req.ForNs = int64(d)
	}
	return req, nil
}

func restoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore [NAME]",
		Short: "Give one container, or all, their own values back, and hold them until `trimtab resume`",
		Long: "Give one container, or all, the values back that they had before trimtab's first change. A value that somebody\n" +
			"else has set since is left alone. Nothing is changed again until `trimtab resume`.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if offline, _ := cmd.Flags().GetBool("offline"); offline {
				results, err := restoreOffline(cmd, args)
				return showResults(cmd, results, err)
			}
			c := daemonClient(cmd)
			_, stop := startProgress(cmd.ErrOrStderr(), stillChanged(cmd.Context(), c))
			results, err := c.Restore(cmd.Context(), nameOf(args))
			stop()
			return showResults(cmd, results, err)
		},
	}
	cmd.Flags().Bool("offline", false, "without a daemon, from what is on disk")
	cmd.Flags().String("state-dir", "", "with --offline: where the daemon kept its state; default from the config")
	cmd.Flags().String("config", config.DefaultFile, "with --offline: the daemon's config `FILE`, which says where its engines are")
	cmd.Flags().String("conf-dir", config.DefaultDropDir, "with --offline: `DIR` of *.yaml files that come after it")
	return cmd
}

// stillChanged says how many containers have not their own values yet, as the daemon counts them.
func stillChanged(ctx context.Context, c *client.Client) func(elapsed time.Duration) string {
	return func(elapsed time.Duration) string {
		ctx, cancel := context.WithTimeout(ctx, progressEach)
		defer cancel()
		seconds := int(elapsed.Seconds())
		s, err := c.Status(ctx)
		if err != nil {
			return fmt.Sprintf("restoring, %d s", seconds)
		}
		return fmt.Sprintf("restoring: containers that are still changed: %d, %d s", s.Containers.Changed, seconds)
	}
}

func resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resume [NAME]",
		Short:             "End the hold of a restore; without a name, all holds, and a pause too",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			results, err := daemonClient(cmd).Resume(cmd.Context(), nameOf(args))
			return showResults(cmd, results, err)
		},
	}
}

func pauseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pause",
		Short: "Freeze every value as it stands, until `trimtab resume`; survives a reboot",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := daemonClient(cmd).Pause(cmd.Context())
			return showAnswer(cmd, map[string]bool{"paused": true}, err, func() string {
				return "paused: every value stays as it is until `trimtab resume`, also over a reboot\n"
			})
		},
	}
}

func nameOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

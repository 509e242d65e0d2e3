package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// wired is the list of subcommands that need the daemon's parts.
func wired() wiring {
	return wiring{
		commands: []*cobra.Command{daemonCommand(), doctorCommand(), gpuCommand(), profilesCommand(), placeCommand(), recordCommand(), replayCommand(), symbolsChildCommand(),
			formerly("fingerprints", "profiles", profilesCommand()), formerly("idle", "gpu idle", idleCommand())},
		restoreOffline: restoreOffline,
	}
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

// version is what this binary says it is.
func version() string { return buildOf().Version }

package main

import "github.com/spf13/cobra"

// wired is the list of subcommands that need the daemon's parts.
func wired() wiring {
	return wiring{
		commands:       []*cobra.Command{daemonCommand(), doctorCommand(), gpuCommand(), fingerprintsCommand(), recordCommand(), replayCommand(), labCommand(), nvmlChildCommand(), symbolsChildCommand()},
		restoreOffline: restoreOffline,
	}
}

// version is what this binary says it is.
func version() string { return buildOf().Version }

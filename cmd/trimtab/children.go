package main

import (
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// symbolsChildCommand is the process that reads containers' libraries for the daemon.
func symbolsChildCommand() *cobra.Command {
	return &cobra.Command{
		Use:                symbols.ChildCommand,
		Short:              "Read libraries for the daemon, which starts this",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			if code := symbols.Child(); code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
}

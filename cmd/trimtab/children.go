package main

import (
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/probes/nvml"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// nvmlChildCommand is the process that calls NVIDIA's library for the daemon.
func nvmlChildCommand() *cobra.Command {
	return childCommand(nvml.ChildCommand, "Read NVIDIA devices for the daemon, which starts this", nvml.Child)
}

// symbolsChildCommand is the process that reads containers' libraries for the daemon.
func symbolsChildCommand() *cobra.Command {
	return childCommand(symbols.ChildCommand, "Read libraries for the daemon, which starts this", func([]string) int { return symbols.Child() })
}

func childCommand(name, short string, run func(args []string) int) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              short,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := run(args); code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
}

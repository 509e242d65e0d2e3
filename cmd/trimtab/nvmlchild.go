package main

import (
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/probes/nvml"
)

// nvmlChildCommand is the process that calls NVIDIA's library for the daemon.
func nvmlChildCommand() *cobra.Command {
	return &cobra.Command{
		Use:                nvml.ChildCommand,
		Short:              "Read NVIDIA devices for the daemon, which starts this",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := nvml.Child(args); code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
}

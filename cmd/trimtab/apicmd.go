package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/tuner/api"
)

func apiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "api",
		Short: "Print the description of the daemon's API: OpenAPI 3.1, JSON",
		Long:  "Print the description of the daemon's API: OpenAPI 3.1, in JSON. It is this binary's own, and needs no daemon.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), api.OpenAPI())
			return err
		},
	}
}

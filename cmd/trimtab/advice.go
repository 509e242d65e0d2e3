package main

import (
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
)

func adviceCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "advice [NAME]",
		Short: "List what trimtab cannot change: the line to paste, and what it would give a week",
		Long: "List what only the owner can change, each with the line to paste, its value now and the one advised. GIVES is\n" +
			"the share that it would save or set free. A WEEK is the same in hours of a container that runs all week. Each has\n" +
			"bounds. With a NAME the numbers that it rests on are listed too. Nothing is applied. Nothing is advised without a number.",
		Example:           "  trimtab advice\n  trimtab advice train --output json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := daemonClient(cmd).Advice(cmd.Context(), nameOf(args))
			return showAnswer(cmd, got, err, func() string { return render.Advice(got, nameOf(args) != "", localClock()) })
		},
	}
}

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

func psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List containers: what bounds them, what was changed, what it gained",
		Long: "List containers. RATE is steps per second where steps are confirmed; after ≈ it counts something else that is\n" +
			"named. STALLED is the share of time in which the job neither computed nor waited for its device. SPEEDUP is\n" +
			"measured against the time before the first change; after \"would\" it is predicted, and nothing was changed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := daemonClient(cmd).Containers(cmd.Context())
			all, _ := cmd.Flags().GetBool("all")
			return showAnswer(cmd, got, err, func() string { return render.PS(got.Containers, all) })
		},
	}
	cmd.Flags().BoolP("all", "a", false, "also containers that are not watched")
	return cmd
}

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "explain NAME",
		Short:             "Tell where a container's time goes, what was done about it, and on what evidence",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := daemonClient(cmd).Container(cmd.Context(), args[0])
			return showAnswer(cmd, c, err, func() string { return render.Explain(c, localClock()) })
		},
	}
}

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

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Tell how the daemon fares: its parts, what is lost without them, what it uses itself",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := daemonClient(cmd).Status(cmd.Context())
			return showAnswer(cmd, s, err, func() string { return render.Status(s, localClock()) })
		},
	}
}

func historyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "history [NAME]",
		Short:             "List what was changed and tried, one line each",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeNames,
		RunE:              runHistory,
	}
	cmd.Flags().String("since", "", "how long ago (2h, 7d), a date or a time; default: the first that is kept")
	cmd.Flags().String("until", "", "nothing after it, written as --since; default: now")
	cmd.Flags().Bool("changed", false, "only values that changed")
	cmd.Flags().Int("limit", 0, fmt.Sprintf("only the newest so many; 0: %d, which is the most", state.MaxRecords))
	return cmd
}

func runHistory(cmd *cobra.Command, args []string) error {
	q := api.HistoryQuery{Name: nameOf(args)}
	q.Changed, _ = cmd.Flags().GetBool("changed")
	q.Limit, _ = cmd.Flags().GetInt("limit")
	if q.Limit < 0 || q.Limit > state.MaxRecords {
		return fmt.Errorf("--limit %d: allowed are 0 to %d", q.Limit, state.MaxRecords)
	}
	var err error
	var since, until string
	if since, q.SinceUnixNs, err = instant(cmd, "since"); err != nil {
		return err
	}
	if until, q.UntilUnixNs, err = instant(cmd, "until"); err != nil {
		return err
	}
	records, err := daemonClient(cmd).History(cmd.Context(), q)
	return showAnswer(cmd, records, err, func() string { return render.History(records, q.Changed, since, until, localClock()) })
}

// instant reads a flag that is a time, as it was written and in unix ns; "" is 0.
func instant(cmd *cobra.Command, flag string) (text string, unixNs int64, err error) {
	if text, _ = cmd.Flags().GetString(flag); text == "" {
		return "", 0, nil
	}
	t, err := api.ParseSince(text, time.Now())
	if err != nil {
		return text, 0, fmt.Errorf("--%s %q: %w", flag, text, err)
	}
	return text, t.UnixNano(), nil
}

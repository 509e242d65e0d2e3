package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

func idleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "idle",
		Short: "List GPUs that are held and not used: by whom, how much memory, since when without a kernel",
		Long: "List GPUs that are held and not used. No container needs to be enrolled; processes of the host count too.\n" +
			"SINCE-KERNEL is how long the holder is known to have run nothing; ≥ where no kernel was seen since trimtab\n" +
			"looks. What the driver does not tell is \"unknown\" and never idle. Exit status 0 also without a GPU.",
		Args: cobra.NoArgs,
		RunE: runIdle,
	}
	cmd.Flags().String("since", "", "only holders that are idle for so long: 10m, 3h")
	cmd.Flags().BoolP("all", "a", false, "also GPUs in use and free ones")
	cmd.MarkFlagsMutuallyExclusive("since", "all")
	return cmd
}

func runIdle(cmd *cobra.Command, _ []string) error {
	var q render.IdleQuery
	q.All, _ = cmd.Flags().GetBool("all")
	if since, _ := cmd.Flags().GetString("since"); since != "" {
		d, err := time.ParseDuration(since)
		if err != nil || d < 0 {
			return fmt.Errorf("--since %q: allowed are lengths of time such as 90s, 10m, 3h", since)
		}
		q.Since = d
	}
	got, err := daemonClient(cmd).Devices(cmd.Context())
	return showAnswer(cmd, idleOnly(got, q), err, func() string { return render.Idle(got, q) })
}

// idleOnly leaves those holders that the table shows, for JSON.
func idleOnly(d api.Devices, q render.IdleQuery) api.Devices {
	if q.All {
		return d
	}
	out := d
	out.Devices = []state.Device{}
	for _, dev := range d.Devices {
		dev.Holders = slices.DeleteFunc(slices.Clone(dev.Holders), func(h state.Holder) bool { return !q.Fits(h) })
		if len(dev.Holders) > 0 {
			out.Devices = append(out.Devices, dev)
		}
	}
	return out
}

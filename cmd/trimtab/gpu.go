package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/statefile"
)

func gpuCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "List, hide and show the GPUs of running containers",
	}
	cmd.AddCommand(gpuListCommand(), idleCommand(),
		gpuChangeCommand("hide", "Hide GPUs from a running container: what it opens from now on; a device in use is never hidden", (*client.Client).HideGPU),
		gpuChangeCommand("show", "Show a running container GPUs that were hidden from it", (*client.Client).ShowGPU))
	return cmd
}

func gpuListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List containers and their GPUs: granted, visible now, hidden by trimtab, in use by",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := daemonClient(cmd).GPUs(cmd.Context())
			return showAnswer(cmd, all, err, func() string { return render.GPUVisibilities(all) })
		},
	}
}

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

func gpuChangeCommand(verb, short string, change func(*client.Client, context.Context, state.GPURequest) ([]state.ActionResult, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   verb + " NAME {DEVICE... | --all}",
		Short: short,
		Long: short + ".\nA DEVICE is an index as nvidia-smi counts, nvidiaN, /dev/nvidiaN or a UUID. The container must be enrolled\n" +
			"(mode tune). What is hidden is shown again when trimtab stops, at `trimtab restore` and at `trimtab disable`.",
		Example:           "  trimtab gpu " + verb + " train 1\n  trimtab gpu " + verb + " train --all",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeNameAndDevices,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := state.GPURequest{Name: args[0], Devices: args[1:]}
			if req.All, _ = cmd.Flags().GetBool("all"); req.All == (len(req.Devices) > 0) {
				return fmt.Errorf("name devices, or --all")
			}
			results, err := change(daemonClient(cmd), cmd.Context(), req)
			return showResults(cmd, results, err)
		},
	}
	cmd.Flags().Bool("all", false, "all devices of the container")
	return cmd
}

// topicHidden is the folder of what is hidden: originals, as those of the knobs are.
const topicHidden = "gpu-hidden"

func newVisibility(s *statefile.Store) *device.Visibility {
	return device.NewVisibility(device.Options{Records: statefile.OpenEach[device.Hidden](s, topicHidden)})
}

// showOffline undoes what is hidden, without a daemon and without an engine. No names:
// of every container.
func showOffline(ctx context.Context, v *device.Visibility, names []string, log *slog.Logger) ([]state.ActionResult, error) {
	var out []state.ActionResult
	each := func(key, name string, did bool, notes []string, err error) {
		for _, note := range notes {
			log.Warn("GPUs", "container", name, "note", note)
		}
		switch {
		case err != nil:
			out = append(out, state.ActionResult{Key: key, Name: name, Text: "hidden GPUs are not shown again: " + err.Error()})
		case did:
			out = append(out, state.ActionResult{Key: key, Name: name, OK: true, Text: "hidden GPUs are shown again"})
		}
	}
	if len(names) == 0 {
		if err := v.RestoreAll(ctx, each); err != nil && len(out) == 0 {
			return nil, err
		}
		return out, nil
	}
	hidden := slices.SortedFunc(maps.Values(v.Containers()), func(a, b runtime.Container) int { return cmp.Compare(a.Key(), b.Key()) })
	for _, name := range names { // as limits are: by a key, a name, an ID or its begin
		found, begun := runtime.Find(hidden, name, func(c runtime.Container) (key, name, id string) { return c.Key(), c.Name, c.ID.Container })
		if begun && len(found) > 1 {
			continue // which of them is not said; so it is told of their limits
		}
		for _, c := range found {
			did, notes, err := v.Restore(ctx, c.Key())
			each(c.Key(), c.Name, did, notes, err)
		}
	}
	return out, nil
}

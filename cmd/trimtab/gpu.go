package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/statefile"
)

func gpuCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "List, hide and show the GPUs of running containers",
	}
	cmd.AddCommand(gpuListCommand(), idleCommand(),
		gpuChangeCommand("hide", "Hide GPUs from a running container: what it opens from now on; a device in use is never hidden", true),
		gpuChangeCommand("show", "Show a running container GPUs that were hidden from it", false))
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

func gpuChangeCommand(verb, short string, hide bool) *cobra.Command {
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
			change := daemonClient(cmd).ShowGPU
			if hide {
				change = daemonClient(cmd).HideGPU
			}
			results, err := change(cmd.Context(), req)
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
	for key, c := range v.Containers() {
		if named(c, names) {
			did, notes, err := v.Restore(ctx, key)
			each(key, c.Name, did, notes, err)
		}
	}
	return out, nil
}

func named(c runtime.Container, names []string) bool {
	return slices.Contains(names, c.Name) || slices.Contains(names, c.ID.Container) || slices.Contains(names, c.Key())
}

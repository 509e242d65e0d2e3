package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/recording"
)

func recordCommand() *cobra.Command {
	var d time.Duration
	var flight bool
	cmd := &cobra.Command{
		Use:   "record FILE",
		Short: "Record what the daemon sees and decides, for `trimtab replay` and bug reports",
		Long: "Record the next stretch through the running daemon. --flight copies the flight recorder instead: the\n" +
			"last stretch, also of a daemon that died. A recording holds names of containers, images and threads, and\n" +
			"what trimtab's labels ask for.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeWhole(args[0], 0o600, func(w io.Writer) error {
				if flight {
					return copyFlight(cmd, w)
				}
				_, stop := startProgress(cmd.ErrOrStderr(), recordingLeft(d))
				defer stop()
				return daemonClient(cmd).Record(cmd.Context(), w, d)
			})
		},
	}
	cmd.Flags().DurationVar(&d, "for", 60*time.Second, "how long to record")
	cmd.Flags().BoolVar(&flight, "flight", false, "copy the flight recorder instead")
	cmd.Flags().String("state-dir", "", "where the daemon keeps its state; default from the config")
	return cmd
}

// recordingLeft says how long a recording of d still takes.
func recordingLeft(d time.Duration) func(elapsed time.Duration) string {
	return func(elapsed time.Duration) string {
		return fmt.Sprintf("recording: %d s left", int(max(d-elapsed, 0).Round(time.Second).Seconds()))
	}
}

// copyFlight joins the segments of the newest run.
func copyFlight(cmd *cobra.Command, w io.Writer) error {
	dir, err := stateDir(cmd)
	if err != nil {
		return err
	}
	all, err := recording.List(filepath.Join(dir, "flight"))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no flight recording in %s: the daemon has not run there, or record.ring is 0", dir)
	}
	return recording.Join(w, recording.LastRun(all))
}

// stateDir is the flag's, else the config's.
func stateDir(cmd *cobra.Command) (string, error) {
	if dir, err := cmd.Flags().GetString("state-dir"); err == nil && dir != "" {
		return dir, nil
	}
	cfg, _, err := config.Load(config.DefaultFile, config.DefaultDropDir)
	return cfg.StateDir, err
}

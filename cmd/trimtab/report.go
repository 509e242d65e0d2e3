package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/fleet"
	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

func reportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Tell what GPUs and CPUs were held for: idle, stalled, saved, lost",
		Long: "Tell what the GPUs and CPUs of this host were held for, in hours. STALLED is in use by a job that neither\n" +
			"computed nor waited for its device. ACTIONABLE is the part of it that trimtab or the owner could relieve.\n" +
			"SAVED counts only what a kept trial proved, by its lower bound, while the change stands. LOST is what trials\n" +
			"cost that were not kept. LENT is CPU time above the owner's quota that nobody else wanted,\n" +
			"GIVEN what trials gave of it. Neither is deducted from SAVED. docs/report.md has the formulas.",
		Example: "  trimtab report --since 7d --by team\n  trimtab report --by cause --output csv\n  trimtab report --html report.html\n" +
			"  trimtab report --prometheus http://prometheus:9090 --since 30d",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{outputCSV: ""},
		RunE:        runReport,
	}
	cmd.Flags().String("since", "7d", "how long ago (2h, 7d), a date or a time; it begins at the full hour before, after 8 days at the day of UTC")
	cmd.Flags().String("by", string(account.ByTeam), "team, image, container or cause")
	var by []cobra.Completion
	for _, b := range account.AllBy() {
		by = append(by, string(b))
	}
	cmd.Flags().String("prometheus", "", "report all hosts that the Prometheus at `URL` scrapes, by team or cause")
	cmd.Flags().String("html", "", "write one page to `FILE` that can be mailed; - is standard output")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(by, cobra.ShellCompDirectiveNoFileComp)) // fails if asked twice
	return cmd
}

func runReport(cmd *cobra.Command, _ []string) error {
	sinceText, _ := cmd.Flags().GetString("since")
	byText, _ := cmd.Flags().GetString("by")
	since, err := api.ParseSince(sinceText, time.Now())
	if err != nil {
		return fmt.Errorf("--since %q: %w", sinceText, err)
	}
	by, err := account.ParseBy(byText)
	if err != nil {
		return fmt.Errorf("--by %q: %w", byText, err)
	}
	var r state.Report
	var now steps
	now.begin("adding up")
	stderr, stop := startProgress(cmd.ErrOrStderr(), now.text)
	if at, _ := cmd.Flags().GetString("prometheus"); at != "" {
		now.begin("asking Prometheus")
		r, err = fleetReport(cmd.Context(), stderr, at, by, since)
	} else {
		r, err = daemonClient(cmd).Report(cmd.Context(), api.ReportQuery{SinceUnixNs: since.UnixNano(), By: by})
	}
	stop()
	if err != nil {
		return err
	}
	return showReport(cmd, r)
}

// fleetReport asks Prometheus, and needs no daemon here.
func fleetReport(ctx context.Context, stderr io.Writer, text string, by account.By, since time.Time) (state.Report, error) {
	at, err := fleet.ParseURL(text)
	if err != nil {
		return state.Report{}, fmt.Errorf("--prometheus: %w", err)
	}
	r, warnings, err := fleet.Report(ctx, at, by, since, time.Now())
	for _, w := range warnings {
		_, _ = fmt.Fprintln(stderr, "trimtab: prometheus warns:", render.Clean(w))
	}
	return r, err
}

// showReport prints a report in the format that was asked for, or writes the page.
func showReport(cmd *cobra.Command, r state.Report) error {
	if file, _ := cmd.Flags().GetString("html"); file != "" {
		write := func(w io.Writer) error { return render.ReportHTML(w, r, localClock()) }
		if file == "-" {
			return write(cmd.OutOrStdout())
		}
		return writeWhole(file, 0o666, write)
	}
	if format, _ := cmd.Flags().GetString("output"); format == outputCSV {
		return render.ReportCSV(cmd.OutOrStdout(), r)
	}
	return show(cmd, r, func() string { return render.Report(r, localClock()) })
}

// writeWhole writes a file that is whole or not there, with no more than a mode. What is no regular file, a device, a pipe or a
// link, is written to as it is: a rename would put a file in its place.
func writeWhole(path string, mode os.FileMode, fill func(io.Writer) error) error {
	was, err := os.Lstat(path)
	if err == nil && !was.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		return errors.Join(fill(f), f.Close())
	}
	temp := filepath.Join(filepath.Dir(path), ".trimtab-"+rand.Text())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) // less the umask
	if err != nil {
		return err
	}
	if err = fill(f); err != nil {
		err = fmt.Errorf("%w (nothing was written to %s)", err, path)
	} else if was != nil {
		err = f.Chmod(was.Mode().Perm() & mode)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // what is left of it is no page
	}
	return err
}

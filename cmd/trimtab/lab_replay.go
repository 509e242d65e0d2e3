package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/tuner/core"
	"github.com/trimtab/trimtab/tuner/lab/sidebyside"
	"github.com/trimtab/trimtab/tuner/recording"
	"github.com/trimtab/trimtab/tuner/render"
)

func labReplayCommand() *cobra.Command {
	var policy string
	cmd := &cobra.Command{
		Use:   "replay --policy NAME FILE…",
		Short: "What another policy would have decided on a recording, beside what was decided",
		Long: "Runs recordings through today's code with another policy. A recording cannot show what would have come of other\n" +
			"decisions: each of the other policy's plans is refused as soon as it is made, and it goes on from what stood.\n" +
			"`trimtab replay` checks the recorded decisions instead.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []sidebyside.Report
			for _, path := range args {
				r, err := besideFile(path, policy)
				if err != nil {
					return err
				}
				all = append(all, r)
			}
			return show(cmd, all, func() string {
				var parts []string
				for _, r := range all {
					parts = append(parts, render.SideBySide(r))
				}
				if total := render.SideBySideTotal(all); total != "" {
					parts = append(parts, total)
				}
				return strings.Join(parts, "\n")
			})
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "", "the other policy, one of "+strings.Join(policyNames(), ", "))
	_ = cmd.MarkFlagRequired("policy") // the flag is defined above
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(policyNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func besideFile(path, policy string) (sidebyside.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return sidebyside.Report{}, err
	}
	defer f.Close()
	r, err := beside(f, filepath.Base(path), policy)
	if err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// beside runs a recording with another policy.
func beside(in io.Reader, file, policy string) (sidebyside.Report, error) {
	r, err := recording.NewReader(in)
	if err != nil {
		return sidebyside.Report{}, err
	}
	defer r.Close()
	c, recorded, err := replayCore(r.Header(), policy)
	if err != nil {
		return sidebyside.Report{}, err
	}
	s := sidebyside.NewShadow(c)
	for {
		kind, raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			out := s.Report(file, recorded, policy)
			out.Truncated = r.Truncated()
			return out, nil
		}
		if err == nil {
			err = shadow(s, kind, raw)
		}
		if err != nil {
			return sidebyside.Report{}, err
		}
	}
}

func shadow(s *sidebyside.Shadow, kind string, raw json.RawMessage) error {
	switch kind {
	case "config":
		cfg := core.Defaults()
		if err := json.Unmarshal(raw, &cfg); err != nil {
			return fmt.Errorf("recording's config: %w", err)
		}
		s.SetConfig(cfg)
	case "tick":
		return s.Tick(raw)
	case "decision":
		return s.Decision(raw)
	}
	return nil
}

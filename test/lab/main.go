// Command lab simulates a cluster on published response curves, beside other ways of sharing it. It
// needs no daemon, no root and no network, and changes nothing. Its figures are a model's; docs/lab.md.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/test/lab/cluster"
	"github.com/trimtab/trimtab/test/lab/placement"
	"github.com/trimtab/trimtab/test/lab/tables"
)

func main() {
	if err := command().Execute(); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	cmd := &cobra.Command{Use: "lab", Short: "Try trimtab without a machine, on published tables", SilenceUsage: true}
	cmd.PersistentFlags().StringP("output", "o", "table", "table or json")
	cmd.AddCommand(simulateCommand(), sourcesCommand())
	return cmd
}

func show(cmd *cobra.Command, v any, text func() string) error {
	switch format, _ := cmd.Flags().GetString("output"); format {
	case "json":
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "table":
		_, err := io.WriteString(cmd.OutOrStdout(), text())
		return err
	default:
		return fmt.Errorf("--output %q: allowed are table and json", format)
	}
}

// sourcesCommand prints the licenses of the embedded tables.
func sourcesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sources",
		Short: "Where the tables of `lab simulate` are from, and their licenses",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, map[string]string{"sources": tables.Sources()}, tables.Sources)
		},
	}
}

// simulated is the JSON of `lab simulate`.
type simulated struct {
	CPU *cluster.Report   `json:"cpu,omitempty"`
	Day *cluster.Report   `json:"day,omitempty"`
	GPU *placement.Report `json:"gpu,omitempty"`
}

// simulateFlags override what a set-up says; zero values do not.
type simulateFlags struct {
	seeds, servers, jobs int
	loads                []float64
	parts                bool
	probe                string
}

func simulateCommand() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate [cpu] [day] [gpu]",
		Short: "Simulate a cluster on published response curves, beside other ways of sharing it",
		Long: "Runs trimtab's allocation on tabulated response curves, beside other ways to share servers. Figures are a model's and\n" +
			"no measurement; equal flags give equal figures.\n\n" +
			"  cpu  the 60-job Tiresias trace on four of Synergy's servers, CPUs and memory shared\n" +
			"  day  the same, 1,000 jobs in 24 hours on 16 servers\n" +
			"  gpu  60 jobs on K80, P100 and V100 with Gavel's rates, placed by predicted speeds and otherwise\n\n" +
			"Without a name: cpu and gpu.",
		ValidArgs: []string{"cpu", "day", "gpu"},
		Args: func(cmd *cobra.Command, args []string) error {
			for _, a := range args {
				if !slices.Contains(cmd.ValidArgs, a) {
					return fmt.Errorf("simulate %q: allowed are %s", a, strings.Join(cmd.ValidArgs, ", "))
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"cpu", "gpu"}
			}
			out, err := f.simulate(args)
			if err != nil {
				return err
			}
			return show(cmd, out, func() string { return simulatedText(out) })
		},
	}
	cmd.Flags().IntVar(&f.seeds, "seeds", 0, "how many seeds, from 1 on; default from the set-up")
	cmd.Flags().IntVar(&f.servers, "servers", 0, "cpu, day: how many servers; default from the set-up")
	cmd.Flags().IntVar(&f.jobs, "jobs", 0, "how many jobs; default from the set-up")
	cmd.Flags().Float64SliceVar(&f.loads, "load", nil, "cpu, day: loads; default from the set-up")
	cmd.Flags().BoolVar(&f.parts, "cache-parts", false, "cpu, day: memory between two steps of a table counts in proportion, not as the lower step")
	cmd.Flags().StringVar(&f.probe, "probe", "", "gpu: where first steps are seen in the table of makespans, one of "+strings.Join(tables.Devices(), ", ")+"; default from the set-up")
	return cmd
}

func (f simulateFlags) simulate(what []string) (out simulated, err error) {
	for _, name := range what {
		switch name {
		case "cpu", "day":
			r, err := cluster.Simulate(f.cluster(name == "day"))
			if err != nil {
				return out, fmt.Errorf("simulating %s: %w", name, err)
			}
			if name == "day" {
				out.Day = &r
			} else {
				out.CPU = &r
			}
		case "gpu":
			r, err := placement.Simulate(f.placement())
			if err != nil {
				return out, fmt.Errorf("simulating gpu: %w", err)
			}
			out.GPU = &r
		}
	}
	return out, nil
}

func (f simulateFlags) cluster(day bool) cluster.Setup {
	s := cluster.TraceSetup()
	if day {
		s = cluster.DaySetup()
	}
	s.Seeds, s.Servers, s.Jobs = orNumber(f.seeds, s.Seeds), orNumber(f.servers, s.Servers), orNumber(f.jobs, s.Jobs)
	if len(f.loads) > 0 {
		s.Loads = f.loads
	}
	s.Parts = f.parts
	return s
}

func (f simulateFlags) placement() placement.Setup {
	s := placement.DefaultSetup()
	s.Seeds, s.Jobs = orNumber(f.seeds, s.Seeds), orNumber(f.jobs, s.Jobs)
	if f.probe != "" {
		s.Probe = f.probe
	}
	return s
}

func orNumber(n, otherwise int) int {
	if n != 0 {
		return n
	}
	return otherwise
}

func simulatedText(s simulated) string {
	var parts []string
	for _, r := range []*cluster.Report{s.CPU, s.Day} {
		if r != nil {
			parts = append(parts, clusterText(*r))
		}
	}
	if s.GPU != nil {
		parts = append(parts, placementText(*s.GPU))
	}
	return strings.Join(parts, "\n")
}

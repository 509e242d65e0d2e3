package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/httpd"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check a configuration, or print a commented example"}
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Tell all problems of a configuration; needs neither daemon nor root",
		Long: "Tell all problems of a configuration, each with file, line, key and what is allowed. Without FILE it is the one\n" +
			"in force: " + config.DefaultFile + " and " + config.DefaultDropDir + ".",
		Args: cobra.MaximumNArgs(1),
		RunE: runConfigCheck,
	}
	check.Flags().String("conf-dir", "", "also read this folder of drop-ins")
	example := &cobra.Command{
		Use:   "example",
		Short: "Print a commented file that sets every key to its default",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, map[string]string{"example": config.Example}, func() string { return config.Example })
		},
	}
	cmd.AddCommand(check, example)
	return cmd
}

// checked is what `config check --output json` answers.
type checked struct {
	OK       bool             `json:"ok"`
	Problems []config.Problem `json:"problems"`
	Warnings []string         `json:"warnings"`
}

func runConfigCheck(cmd *cobra.Command, args []string) error {
	file, dir := config.DefaultFile, config.DefaultDropDir
	if len(args) == 1 {
		file, dir = args[0], ""
		if _, err := os.Stat(file); err != nil { // the daemon would take the defaults; who names a file means it
			return fmt.Errorf("config: %w", err)
		}
	}
	if flag, _ := cmd.Flags().GetString("conf-dir"); flag != "" {
		dir = flag
	}
	cfg, warnings, err := config.Load(file, dir)
	result := checked{OK: err == nil, Problems: append([]config.Problem{}, config.Problems(err)...), Warnings: append([]string{}, warnings...)}
	for _, web := range []struct{ key, path string }{{"metrics.webConfig", cfg.Metrics.WebConfig}, {"page.webConfig", cfg.Page.WebConfig}} {
		if webErr := httpd.CheckWebConfig(web.path); err == nil && webErr != nil {
			// Not the daemon's end: it would take the rest, and not serve this.
			result.OK, result.Problems = false, append(result.Problems, config.Problem{At: file, Key: web.key, Text: webErr.Error()})
		}
	}
	code := 0
	if !result.OK {
		code = 1
	}
	return showGraded(cmd, result, code, func() string { return checkedText(file, cfg, result) })
}

func checkedText(file string, cfg config.Config, result checked) string {
	var out strings.Builder
	for _, w := range result.Warnings {
		fmt.Fprintf(&out, "warning: %s\n", w)
	}
	for _, p := range result.Problems {
		fmt.Fprintf(&out, "%s\n", p)
	}
	if result.OK {
		fmt.Fprintf(&out, "%s is good: mode %s, watch %s, %d match rules\n", file, cfg.Mode, cfg.Watch, len(cfg.Match))
	} else {
		fmt.Fprintf(&out, "%d problems: the daemon would keep the configuration in force\n", len(result.Problems))
	}
	return out.String()
}

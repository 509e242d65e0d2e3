package main

import (
	"fmt"
	"io"
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/tuner/api"
)

// stampedVersion is set by the linker, -X main.stampedVersion=…; without it the
// version is what the Go tool stamped.
//
//trimtab:table the linker sets it before main, nothing does after
var stampedVersion string

// buildInfo tells what this binary was made from.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// buildOf reads what the Go tool stamps into every binary.
func buildOf() buildInfo {
	b := buildInfo{Version: "unknown", Go: goruntime.Version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	switch {
	case stampedVersion != "":
		b.Version = stampedVersion
	case info.Main.Version != "":
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell what this binary was made from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := buildOf()
			return show(cmd, b, func() string { return fmt.Sprintf("trimtab %s (%s, %s)\n", b.Version, b.Go, b.Platform) })
		},
	}
}

// version is what this binary says it is.
func version() string { return buildOf().Version }

func apiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "api",
		Short: "Print the description of the daemon's API: OpenAPI 3.1, JSON",
		Long:  "Print the description of the daemon's API: OpenAPI 3.1, in JSON. It is this binary's own, and needs no daemon.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), api.OpenAPI())
			return err
		},
	}
}

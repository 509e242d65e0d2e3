//go:build man

package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommands writes the manual pages that packages ship. What writes them is linked by the tag
// "man" alone: a daemon that runs as root has no use for it.
func manCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use:    "man FOLDER",
		Short:  "Write a manual page of each command into a folder that exists",
		Long:   "Write a manual page of each command into a folder that exists. SOURCE_DATE_EPOCH is the date that they bear.",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := manDate(os.Getenv("SOURCE_DATE_EPOCH"))
			if err != nil {
				return err
			}
			header := &doc.GenManHeader{Section: "1", Manual: "trimtab", Source: "trimtab", Date: &date}
			root := cmd.Root()
			root.DisableAutoGenTag = true // it would say when, not what
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("manual pages in %s: %w", args[0], err)
			}
			return nil
		},
	}}
}

// manDate is epoch, in seconds since 1970, or now where it is empty: the same sources
// give the same pages.
func manDate(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Now().UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q is no number of seconds: `git log -1 --format=%%ct` gives one", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

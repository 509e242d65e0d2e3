//go:build !man

package main

import "github.com/spf13/cobra"

// manCommands is empty without the tag "man", see man.go.
func manCommands() []*cobra.Command { return nil }

// Command deps holds the architecture: it reads the module in the current
// directory and fails where imports point the wrong way, where a pure package
// reaches the clock, the network, files or unseeded randomness, where what we
// ship links "testing", where a package keeps mutable state, and where what decides
// outgrows a reader. The rules are
// rules.go; its test breaks each once, in testdata.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	m, err := load(context.Background(), ".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "deps:", err)
		os.Exit(2)
	}
	findings := m.check(trimtabRules())
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		fmt.Printf("%d findings; the rules and their reasons are in tools/deps/rules.go\n", len(findings))
		os.Exit(1)
	}
}

// Command testsummary reads `go test -json` on standard input and tells what
// ran: one line for each package as it ends, failures whole with their output,
// skipped tests grouped by what they needed, and as the very last line
// "N passed, N failed, N skipped". It exits 1 if anything failed, a package did
// not build, the stream was cut short, or nothing ran.
package main

import "os"

func main() {
	s := newSummary(os.Stdout)
	if err := s.read(os.Stdin); err != nil {
		s.broken("reading test output: " + err.Error())
	}
	if !s.finish() {
		os.Exit(1)
	}
}

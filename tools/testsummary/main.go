// Command testsummary reads `go test -json` on standard input and tells what
// ran: one line for each package as it ends (with -each for each test too, with what
// it logged), failures whole with their output,
// skipped tests grouped by what they needed, the ten slowest, and as the very last line
// "N passed, N failed, N skipped", with -wants what those lacked too. A test that failed, ran again and passed counts as
// passed, and is named with what it said at first. It exits 1 if anything failed, a package
// did not build, the stream was cut short, or nothing ran.
package main

import (
	"flag"
	"os"
)

func main() {
	s := newSummary(os.Stdout)
	flag.BoolVar(&s.each, "each", false, "a line for each test as it ends")
	flag.BoolVar(&s.wants, "wants", false, "the last line says for want of what tests were skipped")
	flag.Parse()
	if err := s.read(os.Stdin); err != nil {
		s.broken("reading test output: " + err.Error())
	}
	if !s.finish() {
		os.Exit(1)
	}
}

// Command app imports everything.
package main

import (
	_ "example.com/clean/policies/knee"
	_ "example.com/clean/runtime/docker"
	_ "example.com/clean/tuner/verdict"
)

func main() {}

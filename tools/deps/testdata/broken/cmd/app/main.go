// Command app imports implementations, as cmd may, and keeps state, as nothing may.
package main

import (
	_ "example.com/broken/policies"
	_ "example.com/broken/policies/knee"
	_ "example.com/broken/runtime/docker"
	_ "example.com/broken/tuner/helper"
	_ "example.com/broken/tuner/loop"
	_ "example.com/broken/tuner/trial"
	_ "example.com/broken/tuner/verdict"
)

func main() {}

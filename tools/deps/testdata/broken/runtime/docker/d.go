// Package docker imports the tuner, against the arrow.
package docker

import _ "example.com/broken/tuner/loop"

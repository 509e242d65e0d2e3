// Package loop imports an implementation.
package loop

import _ "example.com/broken/policies/knee"

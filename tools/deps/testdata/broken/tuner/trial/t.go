// Package trial is pure by name and reaches files through helper.
package trial

import _ "example.com/broken/tuner/helper"

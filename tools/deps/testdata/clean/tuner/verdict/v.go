// Package verdict is pure.
package verdict

import "example.com/clean/runtime"

// Zero is a constant.
func Zero() runtime.Rate { return 0 }

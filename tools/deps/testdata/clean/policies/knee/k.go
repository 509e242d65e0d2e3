// Package knee is pure.
package knee

import "example.com/clean/runtime"

// Double is a function of its argument.
func Double(r runtime.Rate) runtime.Rate { return 2 * r }

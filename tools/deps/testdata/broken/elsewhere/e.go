// Package elsewhere has no layer.
package elsewhere

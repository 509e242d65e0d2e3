// Package policies imports an implementation, against the arrow.
package policies

import _ "example.com/broken/policies/knee"

// Package lazy delays work from the start of a program to its first use.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles text on its first call. The first call panics if text is
// invalid. Most programs use few of their regular expressions, and each takes some kilobytes.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

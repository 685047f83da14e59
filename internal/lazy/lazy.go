// Package lazy delays work from the start of a program to its first use.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles text on its first call, which panics if text is invalid. Most
// programs never use most of their regular expressions, which need a few kilobytes each.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

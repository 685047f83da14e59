// Package lazy delays work from the start of a program to its first use.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles text when it is called first. Most programs never use most of
// their regular expressions, which need a few kilobytes each. An invalid text panics then.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

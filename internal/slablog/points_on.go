//go:build forebay_points

package slablog

import (
	"sync/atomic"

	"github.com/forebay-log/forebay/internal/crashfile"
)

func init() { crashfile.Point = point }

// pointHook is called at every point, by the goroutine that reaches it.
var pointHook atomic.Pointer[func(name string)]

func point(name string) {
	if h := pointHook.Load(); h != nil {
		(*h)(name)
	}
}

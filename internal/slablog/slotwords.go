package slablog

import (
	"log/slog"
	"math"
	"runtime"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// slotWords is a [layout.Slot] as four words. Storing its seven fields separately would add a fifth
// to the cost of a write, because each store waits for the cache before the lock can be released.
type slotWords [layout.SlotBytes / 8]uint64

// bigEndian reports whether the machine stores the highest byte of a word first.
const bigEndian = runtime.GOARCH == "ppc64" || runtime.GOARCH == "s390x" || runtime.GOARCH == "mips" || runtime.GOARCH == "mips64"

// pair returns the word that has first at the lower address in memory and second at the higher one.
func pair(first, second uint32) uint64 {
	if bigEndian {
		return uint64(first)<<32 | uint64(second)
	}
	return uint64(second)<<32 | uint64(first)
}

// clampLevel limits l to the 8 bits of a level in a [layout.Slot].
func clampLevel(l slog.Level) int8 {
	return int8(max(math.MinInt8, min(math.MaxInt8, int(l))))
}

// tail returns the last word of a slot: stream and level of m, and no flags.
func tail(m batch.Meta) uint64 {
	level := uint64(uint8(clampLevel(m.Level)))
	if bigEndian {
		return uint64(m.Stream)<<32 | level<<24
	}
	return level<<32 | uint64(m.Stream)
}

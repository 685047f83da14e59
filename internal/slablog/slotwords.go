package slablog

import (
	"log/slog"
	"math"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// slotWords is a [layout.Slot] as four words: seven stores of its fields, each
// waiting for the cache before the lock can be released, cost a fifth of a call.
type slotWords [layout.SlotBytes / 8]uint64

// pair returns the word with first before second in memory.
func pair(first, second uint32) uint64 {
	if bigEndian {
		return uint64(first)<<32 | uint64(second)
	}
	return uint64(second)<<32 | uint64(first)
}

// clampLevel limits l to the range of the 8 bits that a [layout.Slot] has for it.
func clampLevel(l slog.Level) int8 {
	return int8(max(math.MinInt8, min(math.MaxInt8, int(l))))
}

// tail returns the last word of the slot of a record with m: stream, level, no
// flags.
func tail(m batch.Meta) uint64 {
	level := uint64(uint8(clampLevel(m.Level)))
	if bigEndian {
		return uint64(m.Stream)<<32 | level<<24
	}
	return level<<32 | uint64(m.Stream)
}

package slab

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Defaults and limits of [Options], in bytes where nothing else is said.
const (
	DefaultSlabBytes = 64 << 10 // of SlabBytes
	DefaultMaxRecord = 1 << 20  // of MaxRecord

	MinSlabBytes = 512      // of SlabBytes
	MaxSlabBytes = 64 << 20 // of SlabBytes
	MaxSlabCount = 1 << 16  // slabs
)

const (
	defaultSlabCount     = 8
	defaultFlushInterval = 100 * time.Millisecond
	defaultBlockFor      = 250 * time.Millisecond
	defaultCloseTimeout  = 5 * time.Second

	// lastResortQueue is how many records wait for Options.LastResort at most.
	lastResortQueue = 256
)

var (
	// ErrClosed is returned for a write after Close. It wraps [batch.ErrClosed].
	ErrClosed = fmt.Errorf("slab: writer is closed: %w", batch.ErrClosed)
	// ErrDropped is returned by WriteRecord, wrapped with the reason, for a
	// record that the policy dropped.
	ErrDropped = errors.New("slab: record dropped")
	// ErrOversize is returned, by Write, too, for a record larger than
	// Options.MaxRecord. It is dropped and counted, so that the error wraps ErrDropped.
	// A bufio.Writer in front, as zap's BufferedWriteSyncer has, keeps the first error for
	// ever: give MaxRecord room for all that it writes at once.
	ErrOversize = errors.New("slab: record is larger than MaxRecord")
)

// Options configures a [Writer]. The zero value is useful: each field states
// its default and unit.
type Options struct {
	// Name stands in reports and events. Default "slab".
	Name string
	// SlabBytes is the size of one slab in bytes, index included. Default 64 KiB.
	SlabBytes int
	// SlabCount is the number of slabs, all allocated by New. At least 2;
	// default 8. SlabCount × SlabBytes is the memory of the Writer: a record larger
	// than a slab takes memory of its own, and as many free slabs as that is give
	// theirs up meanwhile, all but two. If too few are free the record waits, or is
	// dropped, as WhenFull says. One such record is taken whatever the slabs hold,
	// as long as no other is pending, so that the Writer never holds more than
	// SlabCount × SlabBytes + MaxRecord. With Crash the slabs are in the file and
	// keep their memory: records larger than a slab, within the same bounds, come on
	// top of it.
	SlabCount int
	// SlabRecords is how many records a slab takes at most; the next one begins another
	// slab. So never more than SlabCount × SlabRecords + 1 records of this process are
	// pending; the one is larger than a slab. A call costs some 50 ns more then. At least 2;
	// default 0: as many as have room.
	SlabRecords int
	// MaxRecord is the largest record in bytes; larger ones are dropped with
	// [batch.Oversize]. Default 1 MiB.
	MaxRecord int
	// FlushInterval is how long the oldest unsent record waits at most for its
	// slab to fill. Default 100 ms, or ten times FlushIdle where that is more; negative: until the slab is full, Flush,
	// Close, or a record of FlushLevel.
	FlushInterval time.Duration
	// FlushIdle, if positive, has records sent as soon as none has come for so long, and
	// at most as long again. While records come, slabs fill up to FlushInterval: fewer
	// and larger writes. Default 0: FlushInterval alone.
	FlushIdle time.Duration
	// FlushLevel is the level from which a record is sent at once. Default
	// slog.LevelError. A *slog.LevelVar is live, here and in the levels below: it is
	// read for every record. Of any other Leveler New reads the level, once.
	FlushLevel slog.Leveler
	// WhenFull is what a write does when no slab is free. Default
	// BlockFor(250 ms).
	WhenFull WhenFull
	// Reserve keeps the last slabs for records that matter: a record below
	// ReserveLevel may not open a slab when Reserve or fewer are free, nor evict
	// older records then, and counts as dropped{full}. Default 0.
	Reserve int
	// ReserveLevel is the level Reserve is kept for. Default slog.LevelInfo.
	ReserveLevel slog.Leveler
	// ImportantLevel is the level from which ImportantWhenFull and LastResort
	// apply. Default slog.LevelError.
	ImportantLevel slog.Leveler
	// ImportantWhenFull is what an important record does when no slab is free,
	// such as Block() while others drop. Default: as WhenFull.
	ImportantWhenFull WhenFull
	// LastResort is written to, on a goroutine of its own, when an important
	// record would be dropped as full: os.Stderr, say. What
	// it takes counts as handled. At most LastResortQueue records wait for it;
	// more are dropped. It must not log into this very Writer: each record would bring
	// forth the next. Default nil.
	LastResort io.Writer
	// CloseTimeout bounds Close and Sync, which take no context. Default 5 s.
	CloseTimeout time.Duration
	// Codec reads what is written; it renders gap markers. Default nil: plain
	// bytes, no markers.
	Codec batch.Codec
	// OnError is told of transitions: drop episodes, what becomes of crash-safe memory,
	// panics. See [batch.Event]. It runs on a goroutine of its own behind a bounded queue,
	// so it may log into this very writer. Default nil: a line on standard error.
	OnError func(batch.Event)
	// Crash makes the slabs survive the death of the process; see [CrashSafe].
	// Default nil: slabs are on the heap.
	Crash *Crash
}

// WhenFull says what a write does when no slab is free. Use [BlockFor], [Block],
// [DropNewest], [DropOldest] or [Spill] to make one.
type WhenFull struct {
	kind whenFullKind
	wait time.Duration
}

type whenFullKind uint8

const (
	whenFullDefault whenFullKind = iota
	whenFullBlockFor
	whenFullBlock
	whenFullDropNewest
	whenFullDropOldest
	whenFullSpill
)

// BlockFor waits at most d for a free slab, in the order of arrival, then drops
// the record. After one such timeout it drops at once until a slab is freed, so
// that a dead destination costs each caller nothing.
func BlockFor(d time.Duration) WhenFull { return WhenFull{kind: whenFullBlockFor, wait: d} }

// Block waits as long as it takes. A destination that logs through its own
// logger can so wait on itself for ever: prefer [BlockFor]. While a caller waits,
// so does what it would log to other outputs: a destination that hangs holds them up.
func Block() WhenFull { return WhenFull{kind: whenFullBlock} }

// DropNewest never waits: the record is dropped and counted.
func DropNewest() WhenFull { return WhenFull{kind: whenFullDropNewest} }

// DropOldest never waits: the oldest slab that no Send is reading makes room for the
// new record. Its records are dropped, all of them, and counted. Older records larger
// than a slab go before it, if a slab is free then; and for a new record of that kind
// the oldest of both kinds go, as many as it needs. If a Send is reading everything,
// the new record is dropped.
func DropOldest() WhenFull { return WhenFull{kind: whenFullDropOldest} }

// spillPatience is how long a write waits at most under [Spill].
const spillPatience = 5 * time.Second

// Spill has the destination put the slabs aside, oldest first, on disk say, whatever
// state it is in: it must be able to, as the one of a deliver.Output with a spool is. A
// write waits for that, in the order of arrival, and not for the delivery. Order is kept: what was put aside is delivered before anything newer.
// If it takes longer than 5 s, because the disk is full or stuck too, the record is
// dropped. As with [BlockFor], the next ones are then dropped at once until a slab is
// freed.
func Spill() WhenFull { return WhenFull{kind: whenFullSpill, wait: spillPatience} }

// ParseWhenFull reads "block", "block-for=250ms", "drop-newest", "drop-oldest" or
// "spill".
func ParseWhenFull(s string) (WhenFull, error) {
	name, arg, hasArg := strings.Cut(s, "=")
	switch {
	case name == "block" && !hasArg:
		return Block(), nil
	case name == "drop-newest" && !hasArg:
		return DropNewest(), nil
	case name == "drop-oldest" && !hasArg:
		return DropOldest(), nil
	case name == "spill" && !hasArg:
		return Spill(), nil
	case name == "block-for" && !hasArg:
		return BlockFor(defaultBlockFor), nil
	case name == "block-for":
		d, err := time.ParseDuration(arg)
		if err != nil || d < 0 {
			return WhenFull{}, fmt.Errorf("slab: when-full %q: %q is no duration of 0 or more, such as 250ms", s, arg)
		}
		return BlockFor(d), nil
	}
	return WhenFull{}, fmt.Errorf("slab: when-full %q is not one of block, block-for=DURATION, drop-newest, drop-oldest, spill", s)
}

// String is the inverse of [ParseWhenFull].
func (w WhenFull) String() string {
	switch w.kind {
	case whenFullBlockFor:
		return "block-for=" + w.wait.String()
	case whenFullBlock:
		return "block"
	case whenFullDropNewest:
		return "drop-newest"
	case whenFullDropOldest:
		return "drop-oldest"
	case whenFullSpill:
		return "spill"
	}
	return BlockFor(defaultBlockFor).String()
}

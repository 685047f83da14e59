package slab

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// NoFlushLevel is a FlushLevel above the level of any record: no record is sent because of its
// level.
const NoFlushLevel = slog.Level(math.MaxInt8 + 1)

var (
	// ErrDropped is returned by WriteRecord, wrapped with the reason, for a record that the policy
	// dropped.
	ErrDropped = errors.New("slab: record dropped")
	// ErrOversize is returned for a record larger than Options.MaxRecord, also by Write. The
	// record is dropped and counted, and the error wraps ErrDropped. A bufio.Writer in front of
	// an output, such as zap's BufferedWriteSyncer, repeats its first error forever: set
	// MaxRecord to at least its buffer size.
	ErrOversize = errors.New("slab: record is larger than MaxRecord")
)

// Options configures memory. The zero value is useful: each field states its default and unit.
type Options struct {
	// Name is the name in reports and events. Default "slab".
	Name string
	// SlabBytes is the size of one slab in bytes, including its index, from 512 B to 64 MiB.
	// Default 64 KiB.
	SlabBytes int
	// SlabCount is the number of slabs, from 2 to 65536. All are allocated at the start. Default
	// 8.
	//
	// The memory is SlabCount × SlabBytes. A record larger than a slab has a separate buffer. To
	// compensate, the memory of as many free slabs is released. Two slabs always keep their memory.
	// If too few slabs are free, WhenFull applies. One such record is accepted even then, if no
	// other is pending, so the memory is at most SlabCount × SlabBytes + MaxRecord. With Crash the
	// slabs are in the file and keep their memory, and larger records need additional memory with
	// the same limits.
	SlabCount int
	// SlabRecords is the maximum number of records in a slab; a further record begins the next
	// slab. At most SlabCount × SlabRecords + 1 records of this process are pending; the extra one
	// is a record larger than a slab. A limit costs about 50 ns per call. At least 2; default 0:
	// limited by the size only.
	SlabRecords int
	// MaxRecord is the maximum size of a record in bytes. Larger records are dropped with the
	// reason [batch.Oversize]. Default 1 MiB, at most 64 MiB.
	MaxRecord int
	// FlushInterval is the maximum time that the oldest unsent record waits for its slab to fill.
	// Default 100 ms, or ten times FlushIdle if that is longer. Negative: records wait until the
	// slab is full, or until Flush, Close or a record of FlushLevel.
	FlushInterval time.Duration
	// FlushIdle, if positive, sends the waiting records when no new record arrives. They are sent
	// between one and two times FlushIdle after the last record. While records keep arriving,
	// slabs fill for up to FlushInterval, so that writes are fewer and larger. Default 0: only
	// FlushInterval applies.
	FlushIdle time.Duration
	// FlushLevel is the lowest level at which a record is sent at once; [NoFlushLevel] means none.
	// Default slog.LevelError. If FlushLevel, ReserveLevel or ImportantLevel is a *slog.LevelVar,
	// its value is read for each record. The level of any other Leveler is read once.
	FlushLevel slog.Leveler
	// WhenFull is the behavior of a write if no slab is free. Default BlockFor(250 ms).
	WhenFull WhenFull
	// Reserve is the number of slabs reserved for important records: if at most Reserve slabs are
	// free, a record below ReserveLevel that does not fit into the current slab is counted as
	// dropped{full}, and evicts no older records. Default 0.
	Reserve int
	// ReserveLevel is the lowest level that may use the Reserve. Default slog.LevelInfo.
	ReserveLevel slog.Leveler
	// ImportantLevel is the lowest level to which ImportantWhenFull and LastResort apply.
	// Default slog.LevelError.
	ImportantLevel slog.Leveler
	// ImportantWhenFull is the behavior of a write if no slab is free and the record is important
	// (at or above ImportantLevel). For example, important records can wait (Block()) while others
	// are dropped. Default: WhenFull.
	ImportantWhenFull WhenFull
	// LastResort, such as os.Stderr, receives important records that would otherwise be dropped as
	// full. They count as handled. Its Write is called on a separate goroutine. At most 256 records
	// wait for it; further ones are dropped. It must not log to the same memory, because each
	// record would then produce another one. Default nil: none.
	LastResort io.Writer
	// CloseTimeout limits Close and Sync, which have no context. Default 5 s.
	CloseTimeout time.Duration
	// Codec is the codec of the records. It also encodes gap markers, the records that report
	// drops. Default nil: plain bytes, no markers.
	Codec batch.Codec
	// OnError receives events about transitions: a series of drops, problems of crash-safe memory,
	// panics. See [batch.Event]. It runs in a separate goroutine with a bounded queue, so it may
	// log to the same memory. [ErrorsTo] makes a function that writes lines. Default nil: a line on
	// standard error.
	OnError func(batch.Event)
	// Crash makes the slabs survive the death of the process, see [Crash]. Default nil:
	// slabs are on the heap.
	Crash *Crash
}

// ErrorsTo returns a function for Options.OnError that writes one line per event to w. The calls
// of Write are serialized.
func ErrorsTo(w io.Writer) func(batch.Event) {
	var mu sync.Mutex
	return func(e batch.Event) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(w, e)
	}
}

// WhenFull is the behavior of a write if no slab is free. [BlockFor], [Block], [DropNewest],
// [DropOldest] and [Spill] return one.
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

var whenFullNames = [...]string{"", "block-for", "block", "drop-newest", "drop-oldest", "spill"}

// BlockFor waits at most d for a free slab, in the order of arrival, and then drops the record.
// After one timeout, records are dropped at once until a slab becomes free, so that a dead
// destination does not delay each call.
func BlockFor(d time.Duration) WhenFull { return WhenFull{kind: whenFullBlockFor, wait: d} }

// Block waits without limit. A destination that logs through the same logger can then wait for
// itself forever; use [BlockFor] if possible. A waiting caller logs to no other output either, so
// a destination that hangs delays the other outputs.
func Block() WhenFull { return WhenFull{kind: whenFullBlock} }

// DropNewest never waits: the record is dropped and counted.
func DropNewest() WhenFull { return WhenFull{kind: whenFullDropNewest} }

// DropOldest never waits. If no slab is free, the oldest slab that the destination is not reading
// is reused for the new record, and all records in it are dropped and counted. An older record
// larger than a slab is dropped instead, if that frees a slab. If the new record is larger than a
// slab, as many of the oldest records are dropped as it needs: a record of 200 KiB takes the place
// of four slabs of 64 KiB. The new record is dropped if the destination is reading too
// many slabs.
func DropOldest() WhenFull { return WhenFull{kind: whenFullDropOldest} }

// spillPatience is the maximum time that a write waits under [Spill].
const spillPatience = 5 * time.Second

// Spill moves the oldest slabs to disk, even while the destination is available. It requires a
// deliver.Output with a spool. Writes wait in the order of arrival until slabs are moved, not until
// their records are delivered. Records are delivered in order. If a wait exceeds 5 s, because the
// disk is full or hangs, the record is dropped. As with [BlockFor], the following records are then
// dropped at once until a slab becomes free.
func Spill() WhenFull { return WhenFull{kind: whenFullSpill, wait: spillPatience} }

// ParseWhenFull parses "block", "block-for=250ms", "drop-newest", "drop-oldest" or
// "spill".
func ParseWhenFull(s string) (WhenFull, error) {
	for _, w := range [...]WhenFull{Block(), DropNewest(), DropOldest(), Spill()} {
		if s == w.String() {
			return w, nil
		}
	}
	name, arg, hasArg := strings.Cut(s, "=")
	if name != whenFullNames[whenFullBlockFor] {
		return WhenFull{}, fmt.Errorf("slab: when-full %q is not one of block, block-for=DURATION, drop-newest, drop-oldest, spill", s)
	}
	if !hasArg {
		return BlockFor(layout.DefaultBlockFor), nil
	}
	d, err := time.ParseDuration(arg)
	if err != nil || d < 0 {
		return WhenFull{}, fmt.Errorf("slab: when-full %q: %q is not a duration of 0 or more, such as 250ms", s, arg)
	}
	return BlockFor(d), nil
}

func init() { layout.MaxWait = func(w any) time.Duration { return w.(WhenFull).maxWait() } }

// maxWait implements [layout.MaxWait].
func (w WhenFull) maxWait() time.Duration {
	switch w.kind {
	case whenFullDefault:
		return layout.DefaultBlockFor
	case whenFullBlock:
		return -1
	}
	return w.wait
}

// String is the inverse of [ParseWhenFull].
func (w WhenFull) String() string {
	w = cmp.Or(w, BlockFor(layout.DefaultBlockFor))
	if w.kind == whenFullBlockFor {
		return whenFullNames[w.kind] + "=" + w.wait.String()
	}
	return whenFullNames[w.kind]
}

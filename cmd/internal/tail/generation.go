package tail

import (
	"fmt"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// A generation is one content of the file at a path. A rename, a deletion or a truncation ends it,
// and the next content at the path is the next generation.
//
// index.mu guards all fields. While lines of a generation are being read, only its reader changes
// at.
type generation struct {
	no    uint64 // number in the file of positions
	order uint64 // increases with each generation of a path
	s     *series
	id    id
	real  string // last known path, without symbolic links
	home  string // another path of the file that the patterns match, or ""

	state genState
	f     *os.File  // nil if closed
	used  time.Time // time of the last use of f

	at        mark // position of the first byte that was not passed to the sink
	size      int64
	mtime     time.Time
	head      head
	data      mark // end of the data seen so far, without trailing NUL bytes
	limit     int64
	remainder remainder // what the data between at and size is known to be

	charset  *charset.Charset // determined by Options.Charset and the byte order mark
	detected bool             // charset is final

	active time.Time // time of the last change
	scan   uint64    // number of the last scan before it was moved
	failed bool      // a read error was reported

	snapped   spot   // position in the last snapshot
	settled   spot   // position in the last committed snapshot
	settledNo uint64 // number of the last committed snapshot
	unsaved   bool   // it is in index.unsaved
	dropped   bool
}

// A remainder describes the data of a generation between its position and its size.
type remainder uint8

const (
	readable    remainder = iota // may contain complete lines
	partialLine                  // has no newline, or cannot be read
	onlyNULs                     // consists of NUL bytes
)

// A spot is the position in a generation at which the next process continues.
type spot struct {
	mark
	cut   bool // the beginning of the line was already delivered
	ended bool // the generation was read completely
}

// A genState describes where the content of a generation can be read.
//
//	            the path leads elsewhere
//	current ─────────────────────────────► moved ─────────► read
//	 │ │ ▲         it is back                │ │      ▲  ▲
//	 │ │ └───────────────────────────────────┘ │      │  │
//	 │ │  truncated, and a copy has the rest   │      │  │
//	 │ ├───────────────────────────────► copied┼──────┘  │
//	 │ │  truncated, deleted or given up    │  ▼         │
//	 │ └──────────────────────────────────► gone ────────┘
//	 │  no text                                          │
//	 └────────► skipped ─────────────────────────────────┘
type genState uint8

const (
	current genState = iota // at the path
	moved                   // renamed or deleted; f is open and may grow
	copied                  // truncated; f is a copy that does not grow
	gone                    // can no longer be read
	skipped                 // not text
	read                    // passed to the sink, but not completely committed
)

var stateNames = [...]string{"current", "moved", "copied", "gone", "skipped", "read"}

func (s genState) String() string { return stateNames[s] }

// edges lists the allowed transitions of each state.
var edges = [...][]genState{
	current: {moved, copied, gone, skipped},
	moved:   {current, copied, gone, skipped, read},
	copied:  {gone, skipped, read},
	gone:    {read},
	skipped: {read},
	read:    {},
}

// become sets the state; no other code does. It panics if edges does not allow the transition.
func (g *generation) become(to genState) {
	for _, next := range edges[g.state] {
		if next == to {
			g.state = to
			return
		}
	}
	panic(fmt.Sprintf("tail: a generation that is %s becomes %s", g.state, to))
}

// hasUnread reports whether the file has data that can be read now.
func (g *generation) hasUnread() bool {
	switch g.state {
	case gone:
		return true // its loss must be reported
	case skipped, read:
		return false
	}
	return g.at.off < g.size && g.remainder == readable
}

// unread returns the number of bytes that were seen but not passed to the sink.
func (g *generation) unread() int64 {
	if g.state == skipped || g.state == read {
		return 0
	}
	return max(0, g.data.off-g.at.off)
}

// isComplete reports whether no more data is expected. scans is the number of completed scans, and
// wait the time since the last change that must pass after a rename.
func (g *generation) isComplete(now time.Time, scans uint64, wait time.Duration) bool {
	switch g.state {
	case copied:
		return true
	case moved:
		return g.scan < scans && now.Sub(g.active) >= wait
	}
	return false
}

// entry returns the entry for the file of positions, with the committed position of g.
func (g *generation) entry() entry {
	e := entry{no: g.no, id: g.id, path: g.s.path, real: g.real, at: g.settled.mark, head: g.head, cut: g.settled.cut, seen: max(g.data.off, g.settled.off)}
	if !g.mtime.IsZero() {
		e.mtime = g.mtime.UnixNano()
	}
	return e
}

// A series contains the generations of the file at one path, and the incomplete records, which
// continue in the next generation.
type series struct {
	path string
	src  *Source

	// The fields gens to queued are guarded by index.mu.
	gens   []*generation // oldest first
	due    time.Time     // time at which the scanner examines it again
	idle   time.Duration
	queued bool // the series is in queue.active; guarded by queue.mu

	// The other fields are used by the reader only.
	charset *charset.Charset // charset of the generation that was read last
	hold    holder
	rest    unfinished
	bare    bool // a line in the wrong format was reported
	touched bool // the series is in commits.touched
}

// An unfinished is the beginning of a line whose end was not read yet.
type unfinished struct {
	kind  unfinishedKind
	in    *generation // generation that may contain its end; nil means the next one
	start place
	text  []byte // text so far, if kind is carried
	n     int64  // length so far, if kind is oversized
}

type unfinishedKind uint8

const (
	complete  unfinishedKind = iota // there is no unfinished line
	carried                         // text ends an earlier generation
	oversized                       // the line is already too long
	cutOff                          // the line was delivered without its end
)

// A place is the start of a line: a position in a generation.
type place struct {
	g *generation
	m mark
}

// current returns the generation at the path, or nil.
func (s *series) current() *generation {
	for _, g := range s.gens {
		if g.state == current || g.state == skipped {
			return g
		}
	}
	return nil
}

// last returns the newest generation, or nil.
func (s *series) last() *generation {
	if len(s.gens) == 0 {
		return nil
	}
	return s.gens[len(s.gens)-1]
}

// open yields the starts of the records that were not passed to the sink yet.
func (s *series) open(yield func(place) bool) {
	if s.rest.kind == carried || s.rest.kind == oversized {
		if !yield(s.rest.start) {
			return
		}
	}
	if s.hold != nil {
		s.hold.Held(yield)
	}
}

// spot returns the position at which the next process would continue in g. A held record and
// everything after it is read again.
func (s *series) spot(g *generation) spot {
	at := spot{mark: g.at, ended: g.state == read}
	for p := range s.open {
		switch {
		case p.g == g && p.m.off < at.off:
			at.mark, at.ended = p.m, false
		case p.g == g:
			at.ended = false
		case p.g.order < g.order:
			at.mark, at.ended = mark{}, false
		}
	}
	at.cut = s.rest.kind == cutOff && s.rest.in == g && at.mark == g.at
	return at
}

// holdsTooMuch reports whether a held record keeps so many bytes of g from being committed that it
// must be released.
func (s *series) holdsTooMuch(g *generation) bool {
	if s.hold == nil {
		return false
	}
	for p := range s.hold.Held {
		if p.g != g || g.at.off-p.m.off > 4*turnBytes {
			return true
		}
	}
	return false
}

// holds reports whether an incomplete record begins in g.
func (s *series) holds(g *generation) bool {
	for p := range s.open {
		if p.g == g {
			return true
		}
	}
	return false
}

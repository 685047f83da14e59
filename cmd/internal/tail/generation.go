package tail

import (
	"fmt"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// A generation is one content of the file at a path. A rename, a deletion or a truncation ends
// it; the next content at the path is the next generation.
//
// All fields are guarded by index.mu. While lines of a generation are being read, only its
// reader moves at.
type generation struct {
	no    uint64 // in the file of positions
	order uint64 // increases with each generation of a path
	s     *series
	id    id
	real  string // last known path, without symbolic links
	home  string // another path in the patterns that names it; "": none

	state genState
	f     *os.File  // nil: closed
	used  time.Time // when f was needed last

	at    mark // of the first byte not yet passed to the sink
	size  int64
	mtime time.Time
	head  head
	data  mark // the end of the data seen so far, without trailing NUL bytes
	limit int64
	stuck bool // the rest, up to size, has no newline
	moot  bool // the rest consists of NUL bytes

	charset  *charset.Charset // from Options.Charset and the byte order mark
	detected bool             // charset does not change

	active time.Time // when it last changed
	scan   uint64    // the last scan before it was moved
	failed bool      // it was reported that it cannot be read

	snapped spot // in the last snapshot
	settled spot // of the last snapshot that the sink has committed
	sure    uint64
	unsaved bool // it is in index.unsaved
	dropped bool
}

// A spot is the position at which the next process continues in a generation.
type spot struct {
	mark
	cut   bool // the beginning of its line was delivered
	ended bool // nothing is left to read
}

// A genState is the location of the content of a generation.
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
	current genState = iota // the path names it
	moved                   // renamed or deleted: f is open, and may grow
	copied                  // truncated: f is a copy of it, which does not grow
	gone                    // its content can no longer be read
	skipped                 // current, and not text
	read                    // passed to the sink and not completely committed
)

var stateNames = [...]string{"current", "moved", "copied", "gone", "skipped", "read"}

func (s genState) String() string { return stateNames[s] }

// edges are the states that may follow each state.
var edges = [...][]genState{
	current: {moved, copied, gone, skipped},
	moved:   {current, copied, gone, skipped, read},
	copied:  {gone, skipped, read},
	gone:    {read},
	skipped: {read},
	read:    {},
}

// become sets the state. It is the only place that does. A transition missing from edges is a
// bug, and panics.
func (g *generation) become(to genState) {
	for _, next := range edges[g.state] {
		if next == to {
			g.state = to
			return
		}
	}
	panic(fmt.Sprintf("tail: a generation that is %s becomes %s", g.state, to))
}

// hasUnread reports whether the file is known to have unread data.
func (g *generation) hasUnread() bool {
	switch g.state {
	case gone:
		return true // it must be reported
	case skipped, read:
		return false
	}
	return g.at.off < g.size && !g.stuck
}

// unread returns the number of bytes seen and not yet passed to the sink.
func (g *generation) unread() int64 {
	if g.state == skipped || g.state == read {
		return 0
	}
	return max(0, g.data.off-g.at.off)
}

// over reports whether no more data is expected.
func (g *generation) over(now time.Time, scans uint64, wait time.Duration) bool {
	switch g.state {
	case copied:
		return true
	case moved:
		return g.scan < scans && now.Sub(g.active) >= wait
	}
	return false
}

// entry returns the entry of g in the file of positions, at its settled position.
func (g *generation) entry() entry {
	e := entry{no: g.no, id: g.id, path: g.s.path, real: g.real, at: g.settled.mark, head: g.head, cut: g.settled.cut, seen: max(g.data.off, g.settled.off)}
	if !g.mtime.IsZero() {
		e.mtime = g.mtime.UnixNano()
	}
	return e
}

// A series holds the generations of the file at one path, and the incomplete records, which
// continue in the next generation.
type series struct {
	path string
	src  *Source

	// Guarded by index.mu.
	gens   []*generation // oldest first
	due    time.Time     // when the scanner looks at it again
	idle   time.Duration
	queued bool // it is in queue.active; guarded by queue.mu

	// Used by the delivering goroutine only.
	charset *charset.Charset // of the generation that was read last
	hold    holder
	rest    unfinished
	bare    bool // a line that no container runtime wrote was reported
	touched bool // it is in commits.touched
}

// An unfinished is the beginning of a line whose end has not been read.
type unfinished struct {
	kind  unfinishedKind
	in    *generation // the only one that may contain its end; nil: the next one
	start place
	text  []byte // of carried
	n     int64  // bytes of tooLong
}

type unfinishedKind uint8

const (
	complete  unfinishedKind = iota // no line is open
	carried                         // text is the end of an earlier generation
	oversized                       // the line is too long already
	cutOff                          // it was delivered without its end
)

// A place is the position at which a line begins.
type place struct {
	g *generation
	m mark
}

// current returns the generation that the path names, or nil.
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

// open yields the positions of the records that have begun and were not passed to the sink.
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

// spot returns the position at which the next process would continue in g. A held record is read
// again from its beginning, together with everything after it.
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

// lags reports whether a record has been held for so many bytes of g that it cannot be waited
// for until g is read.
func (s *series) lags(g *generation) bool {
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

// holds reports whether a record that is not complete begins in g.
func (s *series) holds(g *generation) bool {
	for p := range s.open {
		if p.g == g {
			return true
		}
	}
	return false
}

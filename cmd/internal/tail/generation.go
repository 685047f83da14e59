package tail

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/join"
)

// A generation is the content of the file at a path until a rename, a deletion or a truncation. The
// next content at the path is the next generation.
//
// index.mu guards all fields. While the reader reads lines of a generation, only the reader changes
// generation.at.
type generation struct {
	no        uint64 // number of its entry in the file of positions
	order     uint64 // a later generation of the same path has a higher order
	s         *series
	id        id
	real      string // last known path, without symbolic links
	otherPath string // another path of the file that the patterns match, or ""

	state   genState
	f       *os.File  // nil if closed
	used    time.Time // time of the last use of f
	deleted bool      // f has no path any more, so no other process can read it

	at        position // position of the first byte that was not passed to the sink
	size      int64
	mtime     time.Time
	head      head
	data      position  // end of the data seen so far, without trailing NUL bytes
	limit     int64     // size of the file when it was found; Options.Once requires that this many bytes are read
	remainder remainder // kind of the data from offset at.off to size

	charset  *charset.Charset // determined by Options.Charset and the byte order mark
	detected bool             // charset will not change any more

	active time.Time // time of the last change
	scan   uint64    // number of completed scans when the state became moved
	failed bool      // a read error was reported

	snapped   resumePoint // position in the last snapshot
	settled   resumePoint // position in the last committed snapshot
	settledNo uint64      // number of the last committed snapshot
	unsaved   bool        // the generation is in index.unsaved
	dropped   bool        // the generation was removed from its series
}

// A remainder describes what the reader knows about the data that it has not passed to the sink.
type remainder uint8

const (
	readable    remainder = iota // data that may contain complete lines
	partialLine                  // an unfinished line, or data that could not be read
	onlyNULs                     // NUL bytes only
)

// A resumePoint is the position at which the next process continues to read a generation.
type resumePoint struct {
	position
	cut   bool // the line before the position was delivered without its newline
	ended bool // the generation was read completely
}

// A genState describes where the content of a generation can be read.
//
//	     the path leads to another file
//	current ─────────────────────────────► moved ──────────────► read
//	 │ │ ▲    the path leads to it again     │ │           ▲  ▲
//	 │ │ └───────────────────────────────────┘ │           │  │
//	 │ │  truncated, and a copy has the rest   │           │  │
//	 │ ├───────────────────────────────► copied┼───────────┘  │
//	 │ │  truncated, deleted or abandoned   │  ▼              │
//	 │ └──────────────────────────────────► unavailable ──────┘
//	 │  not text                                              │
//	 └────────► skipped ──────────────────────────────────────┘
type genState uint8

const (
	current     genState = iota // at the path
	moved                       // renamed or deleted; f is open and may grow
	copied                      // truncated; f is a copy that does not grow
	unavailable                 // cannot be read any more
	skipped                     // not text
	read                        // passed to the sink, but not completely committed
)

var stateNames = [...]string{"current", "moved", "copied", "unavailable", "skipped", "read"}

func (s genState) String() string { return stateNames[s] }

// edges lists the allowed transitions of each state.
var edges = [...][]genState{
	current:     {moved, copied, unavailable, skipped},
	moved:       {current, copied, unavailable, skipped, read},
	copied:      {unavailable, skipped, read},
	unavailable: {read},
	skipped:     {read},
	read:        {},
}

// become changes the state of g to next. No other function changes the state. If the table edges
// does not contain the transition, become panics.
func (g *generation) become(next genState) {
	for _, allowed := range edges[g.state] {
		if allowed == next {
			g.state = next
			return
		}
	}
	panic(fmt.Sprintf("tail: a generation that is %s becomes %s", g.state, next))
}

// hasUnread reports whether the reader must process g, because the file has unread data or lost
// data must be reported.
func (g *generation) hasUnread() bool {
	switch g.state {
	case unavailable:
		return true
	case skipped, read:
		return false
	}
	return g.at.off < g.size && g.remainder == readable
}

// unread returns the number of bytes that were found in the file but not passed to the sink.
func (g *generation) unread() int64 {
	if g.state == skipped || g.state == read {
		return 0
	}
	return max(0, g.data.off-g.at.off)
}

// isComplete reports whether no more data is expected in g. Writers may still append to a renamed
// file. A moved generation is therefore complete only if its file has not changed for the duration
// wait, and another scan has ended since the rename. scans is the number of completed scans.
func (g *generation) isComplete(now time.Time, scans uint64, wait time.Duration) bool {
	switch g.state {
	case copied:
		return true
	case moved:
		return g.scan < scans && now.Sub(g.active) >= wait
	}
	return false
}

// entry returns the entry of g for the file of positions, with the committed position.
func (g *generation) entry() entry {
	e := entry{no: g.no, id: g.id, path: g.s.path, real: g.real, at: g.settled.position, head: g.head, cut: g.settled.cut, seen: max(g.data.off, g.settled.off)}
	if !g.mtime.IsZero() {
		e.mtime = g.mtime.UnixNano()
	}
	if g.deleted {
		e.id = deletedID
	}
	return e
}

// checkDeleted sets g.deleted if the file of g, whose status is st, was deleted. It does not set it
// if the file has grown since the scanner examined it, because the next process must then report
// data that was not read. checkDeleted reports whether it has set g.deleted.
func (g *generation) checkDeleted(st fs.FileInfo) bool {
	if g.deleted || !isDeleted(st) || st.Size() > g.size {
		return false
	}
	g.deleted = true
	return true
}

// A series contains the generations of one path. It also holds unfinished records, because they may
// continue in the next generation.
type series struct {
	path string
	src  *Source

	// index.mu guards the fields from gens to idle.
	gens   []*generation // oldest first
	due    time.Time     // time at which the scanner examines the series again
	idle   time.Duration // interval between two such examinations; it grows while nothing changes
	queued bool          // the series is in queue.active; guarded by queue.mu

	// Only the reader uses the fields below.
	charset      *charset.Charset // charset of the generation that was read last
	joiner       lineJoiner
	rest         unfinished
	bareReported bool // a line in the wrong format was reported
	touched      bool // the series is in commits.touched
}

// An unfinished is a line whose end has not been read.
type unfinished struct {
	kind  unfinishedKind
	in    *generation // generation that may contain the end of the line; nil: the next generation
	start lineStart
	text  []byte // text read so far, if kind is carried
	n     int64  // length of the text read so far, if kind is oversized
}

// An unfinishedKind is the state of an unfinished line.
type unfinishedKind uint8

const (
	complete  unfinishedKind = iota // there is no unfinished line
	carried                         // the line began in an earlier generation and is continued; text is its beginning
	oversized                       // the line is already longer than Options.MaxRecord
	cutOff                          // the beginning of the line was delivered as a separate line
)

// A lineStart is the position of the start of a line in a generation.
type lineStart struct {
	g *generation
	m position
}

// current returns the generation whose file is at the path, or nil.
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

// open yields the starts of the records that were read but not passed to the sink.
func (s *series) open(yield func(lineStart) bool) {
	if s.rest.kind == carried || s.rest.kind == oversized {
		if !yield(s.rest.start) {
			return
		}
	}
	if s.joiner != nil {
		s.joiner.Held(yield)
	}
}

// resumePoint returns the position in g at which the next process continues: the start of the first
// record that was read but not passed to the sink. If there is no such record, it is g.at.
func (s *series) resumePoint(g *generation) resumePoint {
	at := resumePoint{position: g.at, ended: g.state == read}
	for p := range s.open {
		switch {
		case p.g == g && p.m.off < at.off:
			at.position, at.ended = p.m, false
		case p.g == g:
			at.ended = false
		case p.g.order < g.order:
			at.position, at.ended = position{}, false
		}
	}
	at.cut = s.rest.kind == cutOff && s.rest.in == g && at.position == g.at
	return at
}

// holdsTooMuch reports whether an incomplete record of s must be passed to the sink now. As long as
// a record is held, nothing that was read after it can be committed. Therefore at most 4*stepBytes
// of g may follow a held record, and no record is held from an earlier generation.
func (s *series) holdsTooMuch(g *generation) bool {
	if s.joiner == nil {
		return false
	}
	for p := range s.joiner.Held {
		if p.g != g || g.at.off-p.m.off > 4*stepBytes {
			return true
		}
	}
	return false
}

// holds reports whether a record that was read but not passed to the sink starts in g.
func (s *series) holds(g *generation) bool {
	for p := range s.open {
		if p.g == g {
			return true
		}
	}
	return false
}

// A lineJoiner combines the lines of a series to records. It holds a record until the record is
// complete.
type lineJoiner = *join.Joiner[lineStart]

const (
	initialBuf = 128 << 10 // initial size of the read buffer
	stepBytes  = 4 << 20   // maximum number of bytes read from one path before the next path is processed
)

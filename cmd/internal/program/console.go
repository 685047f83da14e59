package program

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/forebay-log/forebay/internal/units"
)

// console is standard error: messages, and on a terminal one line that is
// written anew again and again.
type console struct {
	w    io.Writer
	name string // stands before every message

	plain func(text string) string // what a message is written as; nil: as it is

	mu   sync.Mutex
	live string // what stands on the line; empty: nothing
}

// say writes a message of its own line.
func (c *console) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked()
	text := fmt.Sprintf(format, args...)
	if c.plain != nil {
		text = c.plain(text)
	}
	fmt.Fprintf(c.w, "%s: %s\n", c.name, text)
}

// print writes a line for a program to read, without the name.
func (c *console) print(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked()
	fmt.Fprintln(c.w, line)
}

// show replaces the live line.
func (c *console) show(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = line
	fmt.Fprintf(c.w, "\r%s\x1b[K", line)
}

// clear removes the live line.
func (c *console) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked()
}

func (c *console) clearLocked() {
	if c.live != "" {
		fmt.Fprint(c.w, "\r\x1b[K")
		c.live = ""
	}
}

// liveEvery is how often the live line is written.
const liveEvery = 500 * time.Millisecond

// progress is what the live line is about.
type progress struct {
	records, bytes uint64
	inUse, slabs   int // of the output with the fewest free
	waiting        bool
	dropped        uint64
	failing        string // an output that fails; empty: none
}

// liveLine describes what happened between two moments, in at most width
// columns.
func liveLine(before, now progress, d time.Duration, width int) string {
	per := func(n uint64) float64 { return float64(n) / max(d.Seconds(), 1e-9) }
	line := fmt.Sprintf("%s records/s  %s/s  slabs %d/%d  dropped %s",
		units.Rate(per(now.records-before.records)), units.Size(per(now.bytes-before.bytes)),
		now.inUse, now.slabs, units.Count(now.dropped))
	if now.waiting {
		line += "  waiting"
	}
	if now.failing != "" {
		line += "  failing: " + now.failing
	}
	if r := []rune(line); len(r) > width {
		line = string(r[:width])
	}
	return line
}

// liveWidth is the width of the terminal, or 80.
func liveWidth(f *os.File) int {
	w := 0
	if c, err := f.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { w, _, _ = term.GetSize(int(fd)) })
	}
	if w <= 1 {
		return 80
	}
	return w - 1 // the last column would wrap on some
}

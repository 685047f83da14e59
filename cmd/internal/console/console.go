package console

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/forebay-log/forebay/internal/units"
)

// Console writes messages to standard error. On a terminal it can also show a live line below the
// messages, which is overwritten in place.
type Console struct {
	W    io.Writer
	Name string // precedes every message

	Plain func(text string) string // converts a message before it is written; may be nil

	mu   sync.Mutex
	live string // current text of the live line; empty: none
}

// Say writes a message on a separate line.
func (c *Console) Say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked()
	text := fmt.Sprintf(format, args...)
	if c.Plain != nil {
		text = c.Plain(text)
	}
	fmt.Fprintf(c.W, "%s: %s\n", c.Name, text)
}

// Print writes a machine-readable line, without the prefix Name.
func (c *Console) Print(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked()
	fmt.Fprintln(c.W, line)
}

// Show replaces the live line.
func (c *Console) Show(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = line
	fmt.Fprintf(c.W, "\r%s\x1b[K", line)
}

// Clear removes the live line.
func (c *Console) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked()
}

func (c *Console) clearLocked() {
	if c.live != "" {
		fmt.Fprint(c.W, "\r\x1b[K")
		c.live = ""
	}
}

// LiveEvery is the interval at which the live line is updated.
const LiveEvery = 500 * time.Millisecond

// Progress is the content of the live line.
type Progress struct {
	Records, Bytes uint64
	InUse, Slabs   int // slabs of the output with the fewest free slabs
	Waiting        bool
	Dropped        uint64
	Failing        string // name of an output whose deliveries fail; empty: none
}

// LiveLine formats the progress between the states before and now, which were taken d apart, in at
// most width columns.
func LiveLine(before, now Progress, d time.Duration, width int) string {
	per := func(n uint64) float64 { return float64(n) / max(d.Seconds(), 1e-9) }
	line := fmt.Sprintf("%s records/s  %s/s  slabs %d/%d  dropped %s",
		units.Rate(per(now.Records-before.Records)), units.Size(per(now.Bytes-before.Bytes)),
		now.InUse, now.Slabs, units.Count(now.Dropped))
	if now.Waiting {
		line += "  waiting"
	}
	if now.Failing != "" {
		line += "  failing: " + now.Failing
	}
	if r := []rune(line); len(r) > width {
		line = string(r[:width])
	}
	return line
}

// LiveWidth returns the maximum length of a live line: one column less than the width of the
// terminal f. A file that is not a terminal counts as 80 columns wide.
func LiveWidth(f *os.File) int {
	w := 0
	if c, err := f.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { w, _, _ = term.GetSize(int(fd)) })
	}
	if w <= 1 {
		return 80
	}
	return w - 1 // some terminals wrap after the last column
}

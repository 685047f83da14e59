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

// Console writes messages to standard error. On a terminal it can show a live line, which is
// overwritten in place.
type Console struct {
	W    io.Writer
	Name string // prefix of every message

	Plain func(text string) string // if not nil, converts each message before it is written

	mu   sync.Mutex
	live string // current live line; empty if there is none
}

// Say writes a message as a line and removes the live line.
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

// Print writes a line for other programs, without the prefix Name.
func (c *Console) Print(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked()
	fmt.Fprintln(c.W, line)
}

// Show shows line as the live line.
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

// Progress is the data that the live line shows.
type Progress struct {
	Records, Bytes uint64
	InUse, Slabs   int // used and existing slabs of the output with the fewest free slabs
	Waiting        bool
	Dropped        uint64
	Failing        string // name of an output whose deliveries fail; empty if there is none
}

// LiveLine formats the live line in at most width columns. The line shows the progress between two
// states of the pipeline, before and now. The time between them is d.
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

// LiveWidth returns the maximum length of the live line on f. It is one column less than the width
// of the terminal, or 80 if f is not a terminal.
func LiveWidth(f *os.File) int {
	w := 0
	if c, err := f.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { w, _, _ = term.GetSize(int(fd)) })
	}
	if w <= 1 {
		return 80
	}
	return w - 1 // some terminals wrap a line that fills the last column
}

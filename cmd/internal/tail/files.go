package tail

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// files are the open files of generations. At most Options.MaxOpen are open, not counting those without
// a path. index.mu guards them: the caller of a method holds it.
type files struct {
	o       *Options
	open    []*generation
	reading *generation // its reader uses its file; may be nil
}

// errReplaced reports that the path leads to another file. The next scan detects it.
var errReplaced = errors.New("tail: another file")

// same reports whether g still has the content that was seen before.
func (h *files) same(g *generation) bool {
	if g.state == skipped {
		return true
	}
	f, err := h.ensure(g)
	if err != nil {
		return true // the next look reports why
	}
	ok, err := is(f, g.head, g.data)
	return ok || err != nil
}

// measure reads what g is known by.
func (h *files) measure(g *generation) {
	f, err := h.ensure(g)
	if err != nil {
		return
	}
	var buf [4096]byte
	n := min(g.size, int64(len(buf)))
	if _, err := f.ReadAt(buf[:n], g.size-n); err != nil {
		return
	}
	end := n
	for end > 0 && buf[end-1] == 0 { // space that may be filled later
		end--
	}
	unit, start := int64(h.charsetOf(g, f).Unit()), g.size-n
	end = (start+end+unit-1)/unit*unit - start // a NUL may be half of a code unit
	if end > n {
		end -= unit
	}
	if back := min(tailBytes, g.size-n+end); end >= back && end > 0 {
		h.seen(g, mark{g.size - n + end, sum(buf[end-back : end])})
	}
}

// seen notes that g has data up to m, and reports whether its head has changed.
func (h *files) seen(g *generation, m mark) (changed bool) {
	if m.off > g.data.off {
		g.data = m
	}
	if g.head.n < headBytes && int64(g.head.n) < g.data.off {
		if f, err := h.ensure(g); err == nil {
			if head, err := headOf(f, g.data.off); err == nil {
				g.head, changed = head, true
			}
		}
	}
	return changed
}

// ensure opens g.
func (h *files) ensure(g *generation) (*os.File, error) {
	g.used = h.o.now()
	if g.f != nil {
		return g.f, nil
	}
	h.room()
	f, err := os.Open(g.s.path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && idOf(g.s.path, st) != g.id {
		err = errReplaced
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	g.f = f
	h.open = append(h.open, g)
	return f, nil
}

// first opens a file that is not in the index yet. It returns nil if another one is there.
func (h *files) first(path string, what id) (*generation, error) {
	h.room()
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil || idOf(path, st) != what {
		f.Close()
		return nil, err
	}
	return &generation{id: what, real: realPath(path), f: f, size: st.Size(), mtime: st.ModTime()}, nil
}

// room closes the file that was used longest ago, if too many are open.
func (h *files) room() {
	for len(h.open) >= h.o.MaxOpen {
		var oldest *generation
		for _, g := range h.open {
			if g.state != current || g == h.reading {
				continue // nothing leads to it, or it is in use
			}
			if oldest == nil || !g.hasUnread() && oldest.hasUnread() || g.hasUnread() == oldest.hasUnread() && g.used.Before(oldest.used) {
				oldest = g
			}
		}
		if oldest == nil {
			return
		}
		h.shut(oldest)
	}
}

// shut closes the file of g.
func (h *files) shut(g *generation) {
	if g.f != nil {
		g.f.Close()
		g.f = nil
		h.open = slices.DeleteFunc(h.open, func(o *generation) bool { return o == g })
	}
}

// charsetOf returns the charset of g, whose file is f.
func (h *files) charsetOf(g *generation, f io.ReaderAt) *charset.Charset {
	if !g.detected && h.o.Charset != nil {
		var start [charset.MarkBytes]byte
		n, _ := f.ReadAt(start[:], 0)
		g.charset, _ = h.o.Charset.Detect(start[:n])
		g.detected = n == len(start)
	}
	return g.charset
}

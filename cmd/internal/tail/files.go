package tail

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// files contains the open files of generations. At most Options.MaxOpen are open, not counting
// files without a path. index.mu guards it and is held by the callers of its methods.
type files struct {
	o       *Options
	open    []*generation
	reading *generation // the generation that is being read, or nil
}

// errReplaced reports that the path leads to another file. The scanner handles this.
var errReplaced = errors.New("tail: another file")

// unchanged reports whether the file of g still has the content that was seen before.
func (h *files) unchanged(g *generation) bool {
	if g.state == skipped {
		return true
	}
	f, err := h.ensure(g)
	if err != nil {
		return true // the next scan reports the error
	}
	ok, err := is(f, g.head, g.data)
	return ok || err != nil
}

// measure sets the checksums by which g can be recognized later.
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
	for end > 0 && buf[end-1] == 0 { // NUL bytes may be reserved space that is filled later
		end--
	}
	unit, start := int64(h.charsetOf(g, f).Unit()), g.size-n
	end = (start+end+unit-1)/unit*unit - start // a NUL may be part of a code unit
	if end > n {
		end -= unit
	}
	if back := min(tailBytes, g.size-n+end); end >= back && end > 0 {
		h.recordSeen(g, mark{g.size - n + end, sum(buf[end-back : end])})
	}
}

// recordSeen records that g has data up to m, and reports whether its head has changed.
func (h *files) recordSeen(g *generation, m mark) (changed bool) {
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

// ensure returns the file of g, which it opens if necessary.
func (h *files) ensure(g *generation) (*os.File, error) {
	g.used = h.o.now()
	if g.f != nil {
		return g.f, nil
	}
	h.makeRoom()
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

// openNew opens a file that is not in the index yet. It returns nil if the path leads to another
// file by now.
func (h *files) openNew(path string, what id) (*generation, error) {
	h.makeRoom()
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

// makeRoom closes the least recently used file if too many are open.
func (h *files) makeRoom() {
	for len(h.open) >= h.o.MaxOpen {
		var oldest *generation
		for _, g := range h.open {
			if g.state != current || g == h.reading {
				continue // it cannot be opened again, or it is being read
			}
			if oldest == nil || !g.hasUnread() && oldest.hasUnread() || g.hasUnread() == oldest.hasUnread() && g.used.Before(oldest.used) {
				oldest = g
			}
		}
		if oldest == nil {
			return
		}
		h.closeFile(oldest)
	}
}

// closeFile closes the file of g.
func (h *files) closeFile(g *generation) {
	if g.f != nil {
		g.f.Close()
		g.f = nil
		h.open = slices.DeleteFunc(h.open, func(o *generation) bool { return o == g })
	}
}

// charsetOf returns the charset of g. f is its file.
func (h *files) charsetOf(g *generation, f io.ReaderAt) *charset.Charset {
	if !g.detected && h.o.Charset != nil {
		var start [charset.MarkBytes]byte
		n, _ := f.ReadAt(start[:], 0)
		g.charset, _ = h.o.Charset.Detect(start[:n])
		g.detected = n == len(start)
	}
	return g.charset
}

package tail

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// files contains the open files of generations. At most Options.MaxOpen are open, not counting
// files that were renamed or deleted. index.mu guards it, and the callers of its methods hold
// index.mu.
type files struct {
	o       *Options
	open    []*generation
	reading *generation // the generation that is being read, or nil
}

// errReplaced reports that another file is now at the path of a generation. The index then detaches
// the generation.
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
	ok, err := contains(f, g.head, g.data)
	return ok || err != nil
}

// measure sets g.head and g.data from the content of the file of g. With their checksums the
// content is recognized later.
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
	end = (start+end+unit-1)/unit*unit - start // a NUL byte may be part of a code unit
	if end > n {
		end -= unit
	}
	if back := min(tailBytes, g.size-n+end); end >= back && end > 0 {
		h.recordSeen(g, position{g.size - n + end, sum(buf[end-back : end])})
	}
}

// recordSeen records that g has data up to m. It reports whether the head of g has changed.
func (h *files) recordSeen(g *generation, m position) (changed bool) {
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

// ensure returns the open file of g. If it is closed, ensure opens it by its path.
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

// openNew opens the file at path for a new generation. It returns nil if path does not lead to
// fileID any more.
func (h *files) openNew(path string, fileID id) (*generation, error) {
	h.makeRoom()
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil || idOf(path, st) != fileID {
		f.Close()
		return nil, err
	}
	return &generation{id: fileID, real: realPath(path), f: f, size: st.Size(), mtime: st.ModTime()}, nil
}

// makeRoom closes the least recently used files until fewer than Options.MaxOpen are open. It
// prefers files without unread data.
func (h *files) makeRoom() {
	for len(h.open) >= h.o.MaxOpen {
		var oldest *generation
		for _, g := range h.open {
			if g.state != current || g == h.reading {
				continue // it is being read, or it cannot be opened again because it is not at its path
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

// charsetOf returns the charset of g. The byte order mark at the start of f, the file of g,
// determines it; without one it is Options.Charset.
func (h *files) charsetOf(g *generation, f io.ReaderAt) *charset.Charset {
	if !g.detected && h.o.Charset != nil {
		var start [charset.MarkBytes]byte
		n, _ := f.ReadAt(start[:], 0)
		g.charset, _ = h.o.Charset.Detect(start[:n])
		g.detected = n == len(start)
	}
	return g.charset
}

package tail

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// files manages the open files of generations; a [generation] is the content of a file until its
// rotation. At most Options.MaxOpen files are open, not counting files that were renamed or
// deleted. index.mu guards all fields, and callers of the methods hold it.
type files struct {
	o       *Options
	open    []*generation
	reading *generation // the generation that is being read, or nil
}

// errReplaced reports that another file is now at the path.
var errReplaced = errors.New("tail: another file")

// unchanged reports whether the file of the generation g still contains the data that was read from
// it before.
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

// measure computes g.head and g.data, the checksums by which the content of the file is recognized
// later.
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
	end = (start+end+unit-1)/unit*unit - start // round up, because a NUL byte may be part of a UTF-16 code unit
	if end > n {
		end -= unit
	}
	if back := min(tailBytes, g.size-n+end); end >= back && end > 0 {
		h.recordSeen(g, position{g.size - n + end, sum(buf[end-back : end])})
	}
}

// recordSeen is called when data of g was found up to position m. It reports whether g.head has
// changed.
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

// ensure returns the open file of g, and opens it if it is closed.
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

// openNew opens the file at path for a new generation. If the file at path is not fileID any more,
// it returns nil.
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
				continue // g is being read, or its file is no longer at its path and could not be reopened
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

// closeFile closes the file of g, if it is open.
func (h *files) closeFile(g *generation) {
	if g.f != nil {
		g.f.Close()
		g.f = nil
		h.open = slices.DeleteFunc(h.open, func(o *generation) bool { return o == g })
	}
}

// charsetOf returns the charset of g. f is the file of g. If f starts with a byte order mark, the
// mark determines the charset; Options.Charset applies to all other files.
func (h *files) charsetOf(g *generation, f io.ReaderAt) *charset.Charset {
	if !g.detected && h.o.Charset != nil {
		var start [charset.MarkBytes]byte
		n, _ := f.ReadAt(start[:], 0)
		g.charset, _ = h.o.Charset.Detect(start[:n])
		g.detected = n == len(start)
	}
	return g.charset
}

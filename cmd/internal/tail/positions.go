package tail

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/forebay-log/forebay/cmd/internal/state"
)

// An entry is what is stored of a file.
type entry struct {
	id   id
	path string
	real string // without symbolic links
	at   mark   // of the first byte that is not committed
	head head
	cut  bool // a part of a line was delivered, up to at
}

// The file of positions is text: a line for each file, between a first line that names
// the format and a last one with the number of entries and a checksum of all before it.
// docs/format/tail.md describes it.
const (
	positionsName = "positions"
	positionsHead = "forebay tail 1\n"
)

// ErrInUse says that another process has the directory.
var ErrInUse = errors.New("another forebay tail uses it; give each its own directory")

// A store is the directory of positions. It is locked.
type store struct{ dir *state.Dir }

// openStore locks dir, which it makes if need be, and returns the entries. fresh says
// that no process has stored any before. A file of positions that is damaged is renamed,
// and reported as damaged.
func openStore(dir string) (s *store, entries []entry, fresh bool, damaged, err error) {
	d, err := state.Open(dir, positionsName)
	if errors.Is(err, state.ErrInUse) {
		err = ErrInUse
	}
	if err != nil {
		return nil, nil, false, nil, err
	}
	s = &store{d}
	text, err := d.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil, true, nil, nil
	}
	if err == nil {
		if entries, damaged = parsePositions(text); damaged != nil {
			err = d.SetAside()
			damaged = fmt.Errorf("%s is damaged: %w", d.Path(), damaged)
		}
	}
	if err != nil {
		s.close()
		return nil, nil, false, nil, err
	}
	return s, entries, false, damaged, nil
}

// save replaces the entries. Whenever the process or the machine ends, the old ones or
// the new ones are there.
func (s *store) save(entries []entry) error { return s.dir.Save(appendPositions(nil, entries)) }

func (s *store) close() { s.dir.Close() }

func appendPositions(dst []byte, entries []entry) []byte {
	start := len(dst)
	dst = append(dst, positionsHead...)
	for _, e := range entries {
		cut := 0
		if e.cut {
			cut = 1
		}
		dst = fmt.Appendf(dst, "%x %x %d %08x %d %08x %d %q %q\n", e.id.dev, e.id.ino, e.at.off, e.at.sum, e.head.n, e.head.sum, cut, e.path, e.real)
	}
	return fmt.Appendf(dst, "end %d %08x\n", len(entries), sum(dst[start:]))
}

func parsePositions(text []byte) ([]entry, error) {
	body, ok := bytes.CutPrefix(text, []byte(positionsHead))
	if !ok {
		return nil, errors.New("it does not begin as it should")
	}
	end := bytes.LastIndexByte(bytes.TrimSuffix(body, []byte{'\n'}), '\n') + 1
	body, last := body[:end], body[end:]
	var entries []entry
	for line := range bytes.Lines(body) {
		e, err := parseEntry(string(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(entries)+2, err)
		}
		entries = append(entries, e)
	}
	if want := fmt.Sprintf("end %d %08x\n", len(entries), sum(text[:len(text)-len(last)])); string(last) != want {
		return nil, errors.New("its end or its checksum is wrong")
	}
	return entries, nil
}

func parseEntry(line string) (e entry, err error) {
	var cut int
	var rest string
	var n int
	n, err = fmt.Sscanf(line, "%x %x %d %x %d %x %d", &e.id.dev, &e.id.ino, &e.at.off, &e.at.sum, &e.head.n, &e.head.sum, &cut)
	if err != nil || n != 7 || e.at.off < 0 || e.head.n < 0 || e.head.n > headBytes {
		return e, errors.New("a number is wrong")
	}
	for range 7 {
		for line != "" && line[0] != ' ' {
			line = line[1:]
		}
		if line != "" {
			line = line[1:]
		}
	}
	e.cut = cut != 0
	if e.path, rest, err = quoted(line); err == nil {
		if e.real, rest, err = quoted(rest); err == nil && rest != "\n" {
			err = errors.New("something is behind the path")
		}
	}
	return e, err
}

// quoted takes a string in quotes, and the space behind it, from the front of s.
func quoted(s string) (text, rest string, err error) {
	q, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", errors.New("a path has no quotes")
	}
	text, err = strconv.Unquote(q)
	rest = s[len(q):]
	if rest != "" && rest[0] == ' ' {
		rest = rest[1:]
	}
	return text, rest, err
}

package tail

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/state"
)

// An entry is a generation as it is stored in the file of positions.
type entry struct {
	no    uint64 // number of the generation
	id    id
	path  string   // path of its series
	real  string   // path without symbolic links
	at    position // position of the first uncommitted byte
	head  head
	cut   bool  // the line before offset at.off was delivered without its newline
	seen  int64 // end of the data found when the file was last examined
	mtime int64 // time of its last change; 0 if unknown
	ended bool  // the generation was read completely; this entry deletes the earlier entry with the same number
}

// The file of positions is a text file. It begins with a list of generations, followed by the
// changes of the list. docs/format/tail.md describes it.
const (
	positionsName = "positions"
	positionsHead = "forebay tail 2\n"
	oldHead       = "forebay tail 1\n" // format of release 0.1, which has no changes
	logBytes      = 1 << 20            // maximum size of the changes before the list is rewritten
)

// A store is the locked directory of positions.
type store struct {
	dir     *state.Dir
	list    int  // size of the list in the file, in bytes
	log     int  // size of the changes in the file, in bytes
	rewrite bool // the next save must rewrite the whole file
}

// openStore locks dir and returns the stored entries. If dir does not exist, openStore creates it.
// firstRun reports that no process has stored entries before. If the file of positions is damaged,
// openStore renames it and describes the damage in damaged.
func openStore(dir string) (s *store, entries []entry, firstRun bool, damaged, err error) {
	d, err := state.Open(dir, positionsName)
	if err != nil {
		return nil, nil, false, nil, err
	}
	s = &store{dir: d, rewrite: true}
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

// wantsAll reports whether the next save must write all entries.
func (s *store) wantsAll() bool { return s.rewrite || s.log > max(logBytes, s.list) }

// save replaces all entries. After a crash, the file contains either the old or the new entries.
func (s *store) save(entries []entry) error {
	text := appendPositions(nil, entries)
	err := s.dir.Save(text)
	s.rewrite, s.list, s.log = err != nil, len(text), 0
	return err
}

// append adds entries to the file. After append has returned nil, the entries survive the end of
// the process. After the next Sync they also survive a power loss.
func (s *store) append(entries []entry) error {
	var text []byte
	for _, e := range entries {
		text = appendEntry(text, e)
	}
	err := s.dir.Append(text)
	s.rewrite = err != nil
	s.log += len(text)
	return err
}

// close unlocks the directory, so that another process can use it.
func (s *store) close() { s.dir.Close() }

// appendPositions appends to dst the content of a file of positions that lists the entries and
// contains no changes.
func appendPositions(dst []byte, entries []entry) []byte {
	start := len(dst)
	dst = append(dst, positionsHead...)
	for _, e := range entries {
		dst = appendEntry(dst, e)
	}
	return fmt.Appendf(dst, "end %d %08x\n", len(entries), sum(dst[start:]))
}

// appendEntry appends the line of e, which ends with its checksum, to dst.
func appendEntry(dst []byte, e entry) []byte {
	start := len(dst)
	if e.ended {
		dst = fmt.Appendf(dst, "%d - ", e.no)
	} else {
		cut := 0
		if e.cut {
			cut = 1
		}
		dst = fmt.Appendf(dst, "%d %x %x %d %08x %d %08x %d %d %d %q %q ", e.no, e.id.dev, e.id.ino, e.at.off, e.at.sum, e.head.n, e.head.sum, cut, e.seen, e.mtime, e.path, e.real)
	}
	return fmt.Appendf(dst, "%08x\n", sum(dst[start:]))
}

// parsePositions parses a file of positions. It applies the changes and returns the entries of
// generations that were not read completely.
func parsePositions(text []byte) ([]entry, error) {
	if bytes.HasPrefix(text, []byte(oldHead)) {
		return parseOld(text)
	}
	body, ok := bytes.CutPrefix(text, []byte(positionsHead))
	if !ok {
		return nil, errors.New("its header is invalid")
	}
	var entries []entry
	at := map[uint64]int{} // index in entries by number
	off, listed := len(positionsHead), false
	for line := range bytes.Lines(body) {
		if !listed && bytes.HasPrefix(line, []byte("end ")) {
			if want := fmt.Sprintf("end %d %08x\n", len(entries), sum(text[:off])); string(line) != want {
				return nil, errors.New("it is truncated, or its checksum is wrong")
			}
			listed = true
			continue
		}
		e, err := parseLine(string(line))
		switch {
		case err != nil && listed: // incomplete line: the process ended while it wrote the line
			return withoutEnded(entries), nil
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", len(entries)+2, err)
		}
		off += len(line)
		if i, known := at[e.no]; known {
			entries[i] = e
		} else {
			at[e.no] = len(entries)
			entries = append(entries, e)
		}
	}
	if !listed {
		return nil, errors.New("it is truncated, or its checksum is wrong")
	}
	return withoutEnded(entries), nil
}

// withoutEnded removes the entries of generations that were read completely.
func withoutEnded(entries []entry) []entry {
	return slices.DeleteFunc(entries, func(e entry) bool { return e.ended })
}

// parseLine parses a line of the format that appendEntry writes.
func parseLine(line string) (e entry, err error) {
	cut := len(line) - len("00000000\n")
	if cut < 0 || line[cut:] != fmt.Sprintf("%08x\n", sum([]byte(line[:cut]))) {
		return e, errors.New("its checksum is wrong")
	}
	no, rest, _ := strings.Cut(line[:cut], " ")
	if e.no, err = strconv.ParseUint(no, 10, 64); err != nil {
		return e, errors.New("the file number is not a valid number")
	}
	if rest == "- " {
		e.ended = true
		return e, nil
	}
	return e, e.parse(rest, true)
}

// parseOld parses a file of positions in the format of release 0.1.
func parseOld(text []byte) ([]entry, error) {
	body := text[len(oldHead):]
	end := bytes.LastIndexByte(bytes.TrimSuffix(body, []byte{'\n'}), '\n') + 1
	body, last := body[:end], body[end:]
	var entries []entry
	for line := range bytes.Lines(body) {
		e := entry{no: uint64(len(entries))}
		if err := e.parse(strings.TrimSuffix(string(line), "\n")+" ", false); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(entries)+2, err)
		}
		entries = append(entries, e)
	}
	if want := fmt.Sprintf("end %d %08x\n", len(entries), sum(text[:len(text)-len(last)])); string(last) != want {
		return nil, errors.New("it is truncated, or its checksum is wrong")
	}
	return entries, nil
}

// parse parses the fields of a line, of which the device is the first and the real path the last.
// If the parameter seen is true, the line also contains the fields seen and mtime, which release
// 0.1 did not write.
func (e *entry) parse(line string, seen bool) error {
	fields := 7
	form, to := "%x %x %d %x %d %x %d", []any{&e.id.dev, &e.id.ino, &e.at.off, &e.at.sum, &e.head.n, &e.head.sum, new(int)}
	if seen {
		fields += 2
		form, to = form+" %d %d", append(to, &e.seen, &e.mtime)
	}
	n, err := fmt.Sscanf(line, form, to...)
	if err != nil || n != fields || e.at.off < 0 || e.head.n < 0 || e.head.n > headBytes || e.seen < 0 {
		return errors.New("a number is missing or not valid")
	}
	e.cut = *to[6].(*int) != 0
	e.seen = max(e.seen, e.at.off)
	for range fields {
		_, line, _ = strings.Cut(line, " ")
	}
	if e.path, line, err = quoted(line); err == nil {
		if e.real, line, err = quoted(line); err == nil && line != "" {
			err = errors.New("text follows the path")
		}
	}
	return err
}

// quoted splits s into the quoted string at its beginning and the text after the following space.
func quoted(s string) (text, rest string, err error) {
	q, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", errors.New("a path has no quotes")
	}
	text, err = strconv.Unquote(q)
	return text, strings.TrimPrefix(s[len(q):], " "), err
}

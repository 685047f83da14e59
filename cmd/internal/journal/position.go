package journal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/state"
)

// A position is where reading continues: after the entry of a cursor or, if there is no cursor, at
// a time. The zero position is the start of the journal.
type position struct {
	cursor []byte // nil if there is no cursor
	since  int64  // microseconds since 1970; 0 is the start of the journal
}

func (p position) clone() position {
	p.cursor = slices.Clone(p.cursor)
	return p
}

// The cursor file is a text file. It contains the name of the format, the position and a checksum.
// docs/format/journal.md describes it.
const (
	cursorName = "cursor"
	cursorHead = "forebay journal 1\n"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendPosition appends the content of a cursor file to dst.
func appendPosition(dst []byte, p position) []byte {
	start := len(dst)
	dst = append(dst, cursorHead...)
	if p.cursor != nil {
		dst = fmt.Appendf(dst, "cursor %q\n", p.cursor)
	} else {
		dst = fmt.Appendf(dst, "since %d\n", p.since)
	}
	return fmt.Appendf(dst, "end %08x\n", crc32.Checksum(dst[start:], castagnoli))
}

// parsePosition parses the content of a cursor file.
func parsePosition(text []byte) (p position, err error) {
	body, ok := bytes.CutPrefix(text, []byte(cursorHead))
	if !ok {
		return p, errors.New("its header is invalid")
	}
	line, _, _ := bytes.Cut(body, []byte{'\n'})
	keyword, rest, _ := bytes.Cut(line, []byte{' '})
	switch string(keyword) {
	case "cursor":
		s, err := strconv.Unquote(string(rest))
		if err != nil || s == "" {
			return position{}, errors.New("its cursor has no quotes")
		}
		p.cursor = []byte(s)
	case "since":
		if p.since, err = strconv.ParseInt(string(rest), 10, 64); err != nil {
			return position{}, errors.New("its time is not a number")
		}
	default:
		return p, errors.New("it has neither a cursor nor a time")
	}
	if !bytes.Equal(appendPosition(nil, p), text) {
		return position{}, errors.New("it is truncated, or its checksum is wrong")
	}
	return p, nil
}

// open locks Options.Dir and loads the stored position. If no position is stored, it determines
// where the first run begins.
func (j *Journal) open() error {
	begin := position{}
	switch {
	case j.o.FromEnd:
		begin.since = time.Now().UnixMicro()
	case !j.o.Since.IsZero():
		begin.since = max(j.o.Since.UnixMicro(), 0)
	}
	j.at.position = begin
	if j.o.Dir == "" {
		return nil
	}
	d, err := state.Open(j.o.Dir, cursorName)
	if err != nil {
		return err
	}
	text, err := d.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		j.firstRun, err = true, nil
	case err == nil:
		var damage error
		if j.at.position, damage = parsePosition(text); damage != nil {
			if err = d.SetAside(); err == nil {
				j.report("%s is damaged: %s; renamed to %s.bad; reading the journal from its start", d.Path(), damage, cursorName)
			}
		}
	}
	if err != nil {
		d.Close()
		return err
	}
	j.store = d
	return nil
}

// save replaces the stored position by p.
func (j *Journal) save(p position) error { return j.store.Save(appendPosition(nil, p)) }

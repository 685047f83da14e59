package program

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/internal/units"
)

// With --crash-safe the input that was read and that an output has not accepted yet
// lies in a file of its own beside the slabs.

// openAhead makes or continues the file of this run, in the first directory of
// --crash-safe, and takes those that earlier ones have left.
func (s *stdinSource) openAhead(p *pipeline) error {
	dirs := p.crashDirs()
	if dirs == nil {
		return nil
	}
	o := readahead.Options{Bytes: bytesToKeep(int(p.c.maxRecord.Value), s.join), Input: s.f}
	required := false
	for _, out := range p.outs {
		o.Outputs = append(o.Outputs, out.dir)
		required = required || out.c.On("crash-safe-required")
	}
	var found []*readahead.File
	for _, dir := range dirs {
		files, damaged := readahead.Adopt(dir, o.Outputs)
		found = append(found, files...)
		for _, err := range damaged {
			p.con.Say("--crash-safe: input of an earlier run: %s", err)
		}
	}
	slices.SortStableFunc(found, func(a, b *readahead.File) int { return strings.Compare(a.Name(), b.Name()) })
	dir := dirs[0]
	var left uint64
	for _, f := range found {
		most := uint64(0)
		for _, name := range o.Outputs {
			if i := f.Output(name); i >= 0 {
				most = max(most, f.Pending(i))
			}
		}
		left += most
		switch {
		case s.ahead == nil && f.Continues(o):
			s.ahead = f
		case most > 0:
			s.earlier = append(s.earlier, f)
		default: // the rest of a line that is too long, which will not come
			f.Close()
		}
	}
	if left > 0 {
		p.con.Say("%s of input of an earlier run is delivered first", units.Size(float64(left)))
	}
	if s.ahead == nil && p.anySafe() {
		f, err := readahead.Create(dir, o)
		switch {
		case err == nil:
			s.ahead = f
		case required:
			for _, f := range s.earlier {
				f.Close()
			}
			return fmt.Errorf("--crash-safe: cannot keep the input read ahead in %s: %w", dir, err)
		default:
			p.con.Say("--crash-safe: cannot keep the input read ahead in %s: %s; continuing without it: up to %s are lost if this program is killed", dir, err, units.Size(float64(o.Bytes)))
		}
	}
	if s.ahead != nil {
		s.ahead.From(s.input, func(err error) {
			p.con.Say("--crash-safe: input read ahead is now lost if this program is killed: %s", err)
		})
	}
	return nil
}

// anySafe reports whether the slabs of an output survive the program. Those that do not
// have said so.
func (p *pipeline) anySafe() bool {
	for _, out := range p.outs {
		if out.slabs().CrashUnsafe == "" {
			return true
		}
	}
	return false
}

// A mark is the place of an output in a file of input. The zero mark is that of an
// output whose input is in no file.
type mark struct {
	f      *readahead.File
	output int  // in f
	not    bool // the input is not for it
}

// marks returns those of the outputs in f, which may be nil.
func marks(outs []feed, f *readahead.File) []mark {
	marks := make([]mark, len(outs))
	if f != nil {
		for i, out := range outs {
			at := f.Output(out.dir)
			marks[i] = mark{f: f, output: at, not: at < 0}
		}
	}
	return marks
}

// wants reports whether the output has not got the line that ends at offset.
func (m mark) wants(offset int64) bool {
	return m.f == nil || !m.not && !m.f.Has(m.output, offset)
}

// note notes the output's answer to the line that ends at offset.
func (out *output) note(m mark, offset int64, err error) {
	switch {
	case m.f == nil:
	case !errors.Is(err, batch.ErrClosed):
		m.f.Accept(m.output, offset)
	case m.f.Broken() == nil:
		m.f.Refuse(m.output)
		out.kept++
	}
}

// noteOversize notes the output's answer to a line that is too long. It is kept only
// behind another one that is.
func (out *output) noteOversize(m mark, err error) {
	if m.f != nil && m.f.Broken() == nil && m.f.Refused(m.output) && errors.Is(err, batch.ErrClosed) {
		out.kept++
	}
}

package intake

import (
	"errors"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
)

// A mark identifies an output in the read-ahead file of an input. The zero mark is used for inputs
// without such a file.
type mark struct {
	f        *readahead.File
	output   int  // index of the output in f
	excluded bool // the output does not receive this input
}

// marks returns the marks of outs in f. f may be nil.
func marks(outs []feed, f *readahead.File) []mark {
	marks := make([]mark, len(outs))
	if f != nil {
		for i, out := range outs {
			at := f.Output(out.Dir)
			marks[i] = mark{f: f, output: at, excluded: at < 0}
		}
	}
	return marks
}

// wants reports whether the output has not accepted the line that ends at offset.
func (m mark) wants(offset int64) bool {
	return m.f == nil || !m.excluded && !m.f.Has(m.output, offset)
}

// note records whether the output accepted the line that ends at offset. err is the result of its
// write.
func (m mark) note(out *output.Output, offset int64, err error) {
	switch {
	case m.f == nil:
	case !errors.Is(err, batch.ErrClosed):
		m.f.Accept(m.output, offset)
	case m.f.Broken() == nil:
		m.f.Refuse(m.output)
		out.Kept++
	}
}

// noteOversize records the result of a line that is too long. The line is kept for the next run
// only if the output has refused an earlier line.
func (m mark) noteOversize(out *output.Output, err error) {
	if m.f != nil && m.f.Broken() == nil && m.f.Refused(m.output) && errors.Is(err, batch.ErrClosed) {
		out.Kept++
	}
}

package intake

import (
	"errors"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
)

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
			at := f.Output(out.Dir)
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

// noteOversize notes the output's answer to a line that is too long. It is kept only
// behind another one that is.
func (m mark) noteOversize(out *output.Output, err error) {
	if m.f != nil && m.f.Broken() == nil && m.f.Refused(m.output) && errors.Is(err, batch.ErrClosed) {
		out.Kept++
	}
}

package intake

import (
	"errors"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
)

// An aheadPosition is the position of an output in a read-ahead file, which stores standard input
// until the outputs have accepted it. If the input has no read-ahead file, it is zero.
type aheadPosition struct {
	f        *readahead.File
	output   int  // index of the output in f
	excluded bool // f was written for other outputs: this output does not receive the input in it
}

// aheadPositions returns the positions of outs in f. If the input has no read-ahead file, f is nil.
func aheadPositions(outs []feed, f *readahead.File) []aheadPosition {
	positions := make([]aheadPosition, len(outs))
	if f != nil {
		for i, out := range outs {
			at := f.Output(out.Dir)
			positions[i] = aheadPosition{f: f, output: at, excluded: at < 0}
		}
	}
	return positions
}

// wants reports whether the output must receive the line that ends at offset. It returns false if
// an earlier run has passed the line to the output.
func (m aheadPosition) wants(offset int64) bool {
	return m.f == nil || !m.excluded && !m.f.Has(m.output, offset)
}

// The method record is called after a line was written to the output. err is the result of the
// write. If the output is closed, the line remains in the file for the next run. If not, the output
// no longer needs the input before offset.
func (m aheadPosition) record(out *output.Output, offset int64, err error) {
	switch {
	case m.f == nil:
	case !errors.Is(err, batch.ErrClosed):
		m.f.Accept(m.output, offset)
	case m.f.Broken() == nil:
		m.f.Refuse(m.output)
		out.Kept++
	}
}

// The method recordOversize is called instead of record for a line that is too long. err is the
// error of counting the line. If the output is closed and an earlier line remains in the file for
// the next run, this line remains too.
func (m aheadPosition) recordOversize(out *output.Output, err error) {
	if m.f != nil && m.f.Broken() == nil && m.f.Refused(m.output) && errors.Is(err, batch.ErrClosed) {
		out.Kept++
	}
}

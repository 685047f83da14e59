package intake

import (
	"errors"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
)

// An aheadPosition is the position of an output in the read-ahead file of an input. It is zero if the
// input has no such file.
type aheadPosition struct {
	f        *readahead.File
	output   int  // index of the output in f
	excluded bool // f does not contain the output, so the output does not receive this input
}

// aheadPositions returns the position of each of outs in f. f is nil if the input has no read-ahead
// file.
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

// wants reports whether the output must receive the line that ends at offset. If it has already
// accepted the line in an earlier run, wants returns false.
func (m aheadPosition) wants(offset int64) bool {
	return m.f == nil || !m.excluded && !m.f.Has(m.output, offset)
}

// record records err, the result of writing a line to the output. If the output is closed, the line is
// kept for the next run. Otherwise the output has accepted or dropped all input before offset.
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

// recordOversize records err, the result of passing a line that is too long to the output. Such a
// line is kept for the next run only if the output is closed and has refused an earlier line.
func (m aheadPosition) recordOversize(out *output.Output, err error) {
	if m.f != nil && m.f.Broken() == nil && m.f.Refused(m.output) && errors.Is(err, batch.ErrClosed) {
		out.Kept++
	}
}

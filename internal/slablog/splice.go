package slablog

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

// TryWriteSpliced is WriteRecord of p with the texts of in inserted: see
// deliver.Output.TryWriteSpliced.
func (w *Writer) TryWriteSpliced(p []byte, in []slab.Splice, m batch.Meta) bool {
	n, last := len(p), 0
	for i := range in {
		if at := in[i].At; at < last || at > len(p) {
			panic("slab: TryWriteSpliced: the places of texts must lie within the record and ascend")
		}
		last = in[i].At
		n += len(in[i].Text)
	}
	point(ptPut)
	if w.front.checks {
		return false
	}
	w.front.lock()
	ok := w.front.fits(n) && m.Level < w.front.flush.Level()
	if ok {
		splice(w.front.reserve(n, uint64(m.Time), tail(m)), p, in)
		point(ptCopiedLocked)
		point(ptStoredLocked)
	}
	w.front.mu.Unlock()
	point(ptReturn)
	return ok
}

// splice fills dst with p and the texts of in.
func splice(dst, p []byte, in []slab.Splice) {
	from := 0
	for i := range in {
		s := &in[i]
		dst = dst[copy(dst, p[from:s.At]):]
		dst = dst[copy(dst, s.Text):]
		from = s.At
	}
	copy(dst, p[from:])
}

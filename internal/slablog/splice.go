package slablog

import "github.com/forebay-log/forebay/batch"

// A Splice is text to insert into a record, before byte At of the original.
type Splice struct {
	At   int
	Text string
}

// TryWriteSpliced is like [Writer.WriteRecord], but inserts the texts of the Splices into p. It is
// for callers that would have to copy long texts to compose the record. It copies p and the texts.
// If the record cannot simply be appended to the slab that is being filled, TryWriteSpliced returns
// false and changes nothing. The caller then composes the record and calls WriteRecord. The result
// is false for the first record of a slab and after a flush, for a record of FlushLevel, and after
// Close. It is always false with crash-safe memory, with SlabRecords, and with a MaxRecord below
// the size of a slab.
//
// It panics if the At fields are not in ascending order or exceed len(p).
func (w *Writer) TryWriteSpliced(p []byte, in []Splice, m batch.Meta) bool {
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

// splice fills dst with p, into which it inserts the texts of the Splices.
func splice(dst, p []byte, in []Splice) {
	from := 0
	for i := range in {
		s := &in[i]
		dst = dst[copy(dst, p[from:s.At]):]
		dst = dst[copy(dst, s.Text):]
		from = s.At
	}
	copy(dst, p[from:])
}

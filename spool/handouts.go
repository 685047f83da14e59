package spool

// handout is one batch that Next handed out, or a gap before one.
type handout struct {
	through mark // settling it settles all batches before this mark
	gap     bool // batches that are gone: settled with the batch before
	seg     *segment
	records uint32 // of the account
	stored
}

const (
	keepHandouts = 64      // handouts kept for reuse
	keepBytes    = 8 << 20 // ceiling of the buffers in them, in bytes
)

// handouts are the batches that are handed out and not acknowledged, and the memory of earlier
// ones.
type handouts struct {
	list []*handout // oldest first
	free []*handout
}

func (h *handouts) add(o *handout) { h.list = append(h.list, o) }

// spare returns a handout to fill.
func (h *handouts) spare() *handout {
	if n := len(h.free); n > 0 {
		o := h.free[n-1]
		h.free = h.free[:n-1]
		return o
	}
	return new(handout)
}

// release returns a spare handout that was not added.
func (h *handouts) release(o *handout) { h.free = append(h.free, o) }

// forget drops the whole list. The batches stay readable, so their memory is not reused.
func (h *handouts) forget() {
	clear(h.list)
	h.list = h.list[:0]
}

// recycle removes the first n batches from the list and keeps their memory.
func (h *handouts) recycle(n int) {
	kept := 0
	for _, o := range h.free {
		kept += o.bytes()
	}
	for _, o := range h.list[:n] {
		if o.batch.Reset(); cap(o.batch.Runs) > 1 { // of others, joined with it
			o.batch.Runs = nil
		}
		if kept += o.bytes(); !o.gap && len(h.free) < keepHandouts && kept <= keepBytes {
			h.free = append(h.free, o)
		}
	}
	k := copy(h.list, h.list[n:])
	clear(h.list[k:])
	h.list = h.list[:k]
}

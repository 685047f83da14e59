package rivals

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
)

// Floors are no loggers. They say what a machine lets a row reach.

const (
	floorSlab  = 64 << 10
	floorSlabs = 8
)

// MutexSlot is what a slab costs its callers if nobody ever takes one away: a lock, a
// copy and the record's slot, which lies in a cache line of its own, into 8 slabs of
// 64 KiB in turn. Nothing reaches a destination.
type MutexSlot struct {
	mu    sync.Mutex
	mem   [floorSlabs][floorSlab]byte
	slots [floorSlabs][floorSlab / batch.SlotBytes]batch.Slot
	cur   int
	off   int
	n     int
}

// Write copies p, which must be smaller than a slab by a slot.
func (m *MutexSlot) Write(p []byte) (int, error) {
	m.mu.Lock()
	if m.off+len(p)+(m.n+1)*batch.SlotBytes > floorSlab {
		m.cur, m.off, m.n = (m.cur+1)%floorSlabs, 0, 0
	}
	m.slots[m.cur][m.n] = batch.Slot{Ticket: uint64(m.n), Off: uint32(m.off), Len: uint32(len(p))}
	m.n++
	m.off += copy(m.mem[m.cur][m.off:], p)
	m.mu.Unlock()
	return len(p), nil
}

// Drain does nothing.
func (m *MutexSlot) Drain() error { return nil }

// A HandOver is the least that a buffered writer with a goroutine of its own can cost:
// one goroutine copies records, another writes, and between them go two buffers, each as
// large as the four slabs that the drain writes at once. There is no lock, nobody else
// logs, and nothing is counted.
type HandOver struct {
	dst  io.Writer
	rec  []byte
	left atomic.Int64
}

// NewHandOver returns a HandOver of 2 × 256 KiB for copies of rec.
func NewHandOver(dst io.Writer, rec []byte) *HandOver { return &HandOver{dst: dst, rec: rec} }

// Run orders n records. Drain delivers them.
func (h *HandOver) Run(_, n int) { h.left.Add(int64(n)) }

// Drain copies and writes what was ordered.
func (h *HandOver) Drain() error {
	free, full, done := make(chan []byte, 2), make(chan []byte, 2), make(chan error, 1)
	for range cap(free) {
		free <- make([]byte, 0, floorSlab*floorSlabs/2)
	}
	go func() {
		var failed error
		for b := range full {
			if _, err := h.dst.Write(b); err != nil {
				failed = err
			}
			free <- b[:0]
		}
		done <- failed
	}()
	b := <-free
	for range h.left.Swap(0) {
		if len(b)+len(h.rec) > cap(b) {
			full <- b
			b = <-free
		}
		b = append(b, h.rec...)
	}
	full <- b
	close(full)
	return <-done
}

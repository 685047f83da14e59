package slab

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// A bigFile holds the records that are larger than a slab, beside the mapped
// file: frames that are written with write(2) before the call that brought the
// record returns. It stays below twice the oversize budget: what is settled is
// cut off once nothing is pending, or left out when the file is written anew.
type bigFile struct {
	path string

	// Writer.mu is never taken with mu held; Close takes mu with Writer.mu held.
	mu     sync.Mutex
	f      *os.File
	n      int64
	live   []bigFrame // frames that may be pending, oldest first
	closed bool       // it belongs to the next process, or is gone

	// gone are tickets whose record left memory since the last write. Guarded by
	// Writer.mu.
	gone []bigGone
}

// bigFrame is where the frame of a record lies.
type bigFrame struct {
	ticket uint64
	at, n  int64
}

// bigGone is a record that is pending no more.
type bigGone struct {
	ticket  uint64
	evicted bool // by policy: it must not come back. Otherwise acked says so.
}

const bigHeadLen = 40

var errBigClosed = errors.New("the writer is closed")

// flagEvicted marks a frame without payload: the record with this ticket was
// evicted by policy.
const flagEvicted = 1

// appendBigFrame appends the frame of an oversize record: CRC32C over all that
// follows it, length, ticket, time, stream, level, flags, payload.
func appendBigFrame(dst, p []byte, s batch.Slot) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p)))
	dst = binary.LittleEndian.AppendUint64(dst, s.Ticket)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Time))
	dst = binary.LittleEndian.AppendUint32(dst, s.Stream)
	dst = append(dst, byte(s.Level), s.Flags, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, 0)
	dst = append(dst, p...)
	binary.LittleEndian.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], castagnoli))
	return dst
}

// store writes p, and tombstones for the records in gone that were evicted. max
// is how many bytes of records may be pending.
func (b *bigFile) store(p []byte, s batch.Slot, gone []bigGone, max int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errBigClosed
	}
	if b.f == nil {
		f, err := os.OpenFile(b.path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		b.f, b.n = f, 0
	}
	if err := b.bury(gone); err != nil {
		return err
	}
	frame := appendBigFrame(make([]byte, 0, bigHeadLen+len(p)), p, s)
	if room := 2*int64(max) + int64(len(frame)); b.n+int64(len(frame)) > room {
		if err := b.compact(); err != nil {
			return err
		}
	}
	if points {
		point(ptBigWrite)
	}
	at := b.n
	if err := b.append(frame); err != nil {
		return err
	}
	b.live = append(b.live, bigFrame{ticket: s.Ticket, at: at, n: int64(len(frame))})
	if points {
		point(ptBigWritten)
	}
	return nil
}

// bury forgets the records in gone, and marks those that were evicted.
func (b *bigFile) bury(gone []bigGone) error {
	var marks []byte
	for _, g := range gone {
		i := slices.IndexFunc(b.live, func(f bigFrame) bool { return f.ticket == g.ticket })
		if i < 0 {
			continue
		}
		b.live = slices.Delete(b.live, i, i+1)
		if g.evicted {
			marks = appendBigFrame(marks, nil, batch.Slot{Ticket: g.ticket, Flags: flagEvicted})
		}
	}
	if len(b.live) == 0 {
		return b.truncate()
	}
	return b.append(marks)
}

func (b *bigFile) append(frames []byte) error {
	if len(frames) == 0 {
		return nil
	}
	if _, err := b.f.WriteAt(frames, b.n); err != nil {
		_ = b.f.Truncate(b.n) // a torn frame would hide those behind it
		return err
	}
	b.n += int64(len(frames))
	return nil
}

func (b *bigFile) truncate() error {
	if b.n == 0 {
		return nil
	}
	if err := b.f.Truncate(0); err != nil {
		return err
	}
	b.n = 0
	return nil
}

// compact writes the pending frames into a new file, which replaces the old one.
func (b *bigFile) compact() (err error) {
	f, err := os.OpenFile(b.path+newSuffix, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(b.path + newSuffix)
		}
	}()
	var n int64
	var buf []byte
	live := slices.Clone(b.live)
	for i, fr := range live {
		buf = slices.Grow(buf[:0], int(fr.n))[:fr.n]
		if _, err := b.f.ReadAt(buf, fr.at); err != nil {
			return err
		}
		if _, err := f.WriteAt(buf, n); err != nil {
			return err
		}
		live[i].at = n
		n += fr.n
	}
	if points {
		point(ptBigCompact)
	}
	if err := os.Rename(b.path+newSuffix, b.path); err != nil {
		return err
	}
	b.f.Close()
	b.f, b.n, b.live = f, n, live
	return nil
}

// close lets go of the file, after bury. Calls that have not written their frame by then
// do not.
func (b *bigFile) close(gone []bigGone) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.f != nil {
		_ = b.bury(gone) // if it fails they come back once more: never lost
		b.f.Close()
		b.f = nil
	}
}

// holds reports whether the frame of a record is in the file, which is closed.
func (b *bigFile) holds(ticket uint64) bool {
	return slices.ContainsFunc(b.live, func(f bigFrame) bool { return f.ticket == ticket })
}

// goneLocked takes the list of records that are pending no more.
func (b *bigFile) goneLocked() []bigGone {
	g := b.gone
	b.gone = nil
	return g
}

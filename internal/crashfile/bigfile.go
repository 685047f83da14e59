package crashfile

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/internal/layout"
)

// A BigFile is the companion file for records larger than a slab. The call that logs such a record
// writes its frame with write(2) before it returns. The file stays below twice the memory of the
// slabs: it is truncated when no record is pending, and rewritten with only the pending records
// when it is too large.
//
// The methods Note and Close may be called with the lock of the Memory held. That lock is
// never acquired while mu is held.
type BigFile struct {
	Fault error // if not nil, Store returns it; set by tests of package slablog

	path string

	// mu is held during I/O. It guards the fields up to closed.
	mu     sync.Mutex
	f      *os.File   // nil before the first record
	n      int64      // size of the file in bytes
	live   []bigFrame // frames of records that may be pending, oldest first
	closed bool       // Close was called

	// notes are the events that are not yet applied to the file, in order. Store applies them
	// before it writes a frame. If records are evicted to make room for the frame, their tombstones
	// therefore precede it. No other lock is acquired while noteMu is held.
	noteMu sync.Mutex
	notes  []bigNote
}

// bigFrame is the position of a record's frame in the file. n is 0 until the frame is written.
type bigFrame struct {
	ticket uint64
	at, n  int64
}

// bigNote is a queued event of a record.
type bigNote struct {
	ticket uint64
	what   FrameEvent
}

// A FrameEvent is an event of a record larger than a slab.
type FrameEvent uint8

const (
	FrameDue     FrameEvent = iota // the call that logs the record will write the frame
	FrameSettled                   // the record is delivered or dropped, and a later Ack will include it
	FrameEvicted                   // the record was dropped by policy and must not be recovered
)

// maxBigBytes limits the bytes of frames in the file. Recovery reads at most MaxBytes, so the limit
// is lower: it leaves room for tombstones.
const maxBigBytes = MaxBytes - 1<<20

var (
	// ErrBigClosed is returned by [BigFile.Store] after Close.
	ErrBigClosed = errors.New("the writer is closed")
	errBigFull   = errors.New("the file of such records is full")
)

// AppendFrame appends the frame of a record with the payload p: a CRC32C over everything that
// follows it, then length, ticket, time, stream, level, flags and payload. The offset in s is not
// used.
func AppendFrame(dst, p []byte, s layout.Slot) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p)))
	dst = binary.LittleEndian.AppendUint64(dst, s.Ticket)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Time))
	dst = binary.LittleEndian.AppendUint32(dst, s.Stream)
	dst = append(dst, byte(s.Level), s.Flags, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, 0)
	dst = append(dst, p...)
	binary.LittleEndian.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], Castagnoli))
	return dst
}

// Note queues an event. It does no I/O.
func (b *BigFile) Note(ticket uint64, what FrameEvent) {
	b.noteMu.Lock()
	defer b.noteMu.Unlock()
	b.notes = append(b.notes, bigNote{ticket, what})
}

// Store writes the frame of a record with the payload p, unless the record is no longer pending.
// The caller must have queued the event FrameDue for the record. max limits the bytes of pending
// records.
func (b *BigFile) Store(p []byte, s layout.Slot, max int) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrBigClosed
	}
	if b.Fault != nil {
		return b.Fault
	}
	if b.f == nil {
		f, err := os.OpenFile(b.path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		b.f, b.n = f, 0
	}
	err = b.applyNotes()
	i := b.find(s.Ticket)
	if i < 0 { // the record was delivered or dropped before its frame was written
		return err
	}
	defer func() {
		if err != nil {
			b.live = slices.DeleteFunc(b.live, func(f bigFrame) bool { return f.ticket == s.Ticket })
		}
	}()
	if err != nil {
		return err
	}
	frame := AppendFrame(make([]byte, 0, BigHeadLen+len(p)), p, s)
	if room := min(2*int64(max)+int64(len(frame)), maxBigBytes); b.n+int64(len(frame)) > room {
		if err := b.compact(); err != nil {
			return err
		}
		if b.n+int64(len(frame)) > maxBigBytes {
			return errBigFull
		}
	}
	Point(PointBigWrite)
	at := b.n
	if err := b.append(frame); err != nil {
		return err
	}
	b.live[i].at, b.live[i].n = at, int64(len(frame))
	Point(PointBigWritten)
	return nil
}

// ApplyNotes applies the queued events without waiting for the next Store, so that evicted records
// are not recovered. If it fails, recovery delivers the evicted records; no record is lost.
func (b *BigFile) ApplyNotes() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.applyNotes()
}

// applyNotes applies the queued events: it removes records that are no longer pending from live,
// and writes tombstones for evicted records.
func (b *BigFile) applyNotes() error {
	b.noteMu.Lock()
	notes := b.notes
	b.notes = nil
	b.noteMu.Unlock()
	var marks []byte
	for _, note := range notes {
		if note.what == FrameDue {
			b.live = append(b.live, bigFrame{ticket: note.ticket})
			continue
		}
		i := b.find(note.ticket)
		if i < 0 {
			continue
		}
		if note.what == FrameEvicted && b.live[i].n > 0 {
			marks = AppendFrame(marks, nil, layout.Slot{Ticket: note.ticket, Flags: FlagEvicted})
		}
		b.live = slices.Delete(b.live, i, i+1)
	}
	if b.f == nil {
		return nil
	}
	if !slices.ContainsFunc(b.live, bigFrame.written) {
		return b.truncate()
	}
	return b.append(marks)
}

// written reports whether the frame is in the file.
func (f bigFrame) written() bool { return f.n > 0 }

// find returns the index of a record in the field live, or -1.
func (b *BigFile) find(ticket uint64) int {
	return slices.IndexFunc(b.live, func(f bigFrame) bool { return f.ticket == ticket })
}

// append writes frames to the end of the file. If it fails, it restores the size of the file.
func (b *BigFile) append(frames []byte) error {
	if len(frames) == 0 {
		return nil
	}
	if _, err := b.f.WriteAt(frames, b.n); err != nil {
		_ = b.f.Truncate(b.n) // recovery would not find frames after a torn one
		return err
	}
	b.n += int64(len(frames))
	return nil
}

// truncate removes all frames. If the file is empty, it makes no system call.
func (b *BigFile) truncate() error {
	if b.n == 0 {
		return nil
	}
	if err := b.f.Truncate(0); err != nil {
		return err
	}
	b.n = 0
	return nil
}

// compact replaces the file with a new one that has only the pending frames. The new file is
// complete before it is renamed, so a kill leaves a complete file.
func (b *BigFile) compact() (err error) {
	f, err := os.OpenFile(b.path+NewSuffix, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(b.path + NewSuffix)
		}
	}()
	var n int64
	var buf []byte
	live := slices.Clone(b.live)
	for i, fr := range live {
		if !fr.written() {
			continue
		}
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
	Point(PointBigCompact)
	if err := os.Rename(b.path+NewSuffix, b.path); err != nil {
		return err
	}
	b.f.Close()
	b.f, b.n, b.live = f, n, live
	return nil
}

// Close applies the queued events and closes the file. A call of Store that is still waiting to
// write its frame returns an error.
func (b *BigFile) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.f != nil {
		_ = b.applyNotes() // if this fails, recovery delivers the evicted records; no record is lost
		b.f.Close()
		b.f = nil
	}
}

// Holds reports whether the file contains the frame of a record. It is called after Close.
func (b *BigFile) Holds(ticket uint64) bool {
	i := b.find(ticket)
	return i >= 0 && b.live[i].written()
}

package slab

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
)

// A bigFile holds the records that are larger than a slab, beside the mapped
// file: frames that are written with write(2) before the call that brought the
// record returns. It stays below twice the memory of the slabs: what is settled is
// cut off once nothing is pending, or left out when the file is written anew.
type bigFile struct {
	path string

	// Writer.mu is never taken with mu held; Close takes mu with Writer.mu held.
	mu     sync.Mutex
	f      *os.File
	n      int64
	live   []bigFrame // of records that may be pending, oldest first
	closed bool       // it belongs to the next process, or is gone

	// notes are what has happened to records in memory and is not done here yet, in
	// that order. Whoever holds mu takes them first, so that a call which has written
	// its frame has also buried what was evicted for it. noteMu is a leaf.
	noteMu sync.Mutex
	notes  []bigNote
}

// bigFrame is where the frame of a record lies. n is 0 before it is written.
type bigFrame struct {
	ticket uint64
	at, n  int64
}

// bigNote says that something has happened to a record.
type bigNote struct {
	ticket uint64
	what   bigEvent
}

type bigEvent uint8

const (
	bigComes   bigEvent = iota // its call is about to write the frame
	bigSettled                 // it is pending no more, and acked will say so
	bigEvicted                 // it was dropped by policy and must not come back
)

// maxBigBytes bounds the file: recovery reads no more of it than crashfile.MaxBytes, and behind
// the frames there may be tombstones.
const maxBigBytes = crashfile.MaxBytes - 1<<20

var (
	errBigClosed = errors.New("the writer is closed")
	errBigFull   = errors.New("the file of such records is full")
)

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
	binary.LittleEndian.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], crashfile.Castagnoli))
	return dst
}

// note is called with Writer.mu held, and touches no disk.
func (b *bigFile) note(ticket uint64, what bigEvent) {
	b.noteMu.Lock()
	defer b.noteMu.Unlock()
	b.notes = append(b.notes, bigNote{ticket, what})
}

// hasNotes reports whether bury has something to do.
func (b *bigFile) hasNotes() bool {
	b.noteMu.Lock()
	defer b.noteMu.Unlock()
	return len(b.notes) > 0
}

// store writes p, whose ticket was noted as bigComes, unless it is pending no more.
// max is how many bytes of records may be pending.
func (b *bigFile) store(p []byte, s batch.Slot, max int) (err error) {
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
	err = b.bury()
	i := b.find(s.Ticket)
	if i < 0 { // it went before its frame was there
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
	frame := appendBigFrame(make([]byte, 0, crashfile.BigHeadLen+len(p)), p, s)
	if room := min(2*int64(max)+int64(len(frame)), maxBigBytes); b.n+int64(len(frame)) > room {
		if err := b.compact(); err != nil {
			return err
		}
		if b.n+int64(len(frame)) > maxBigBytes {
			return errBigFull
		}
	}
	if points {
		point(ptBigWrite)
	}
	at := b.n
	if err := b.append(frame); err != nil {
		return err
	}
	b.live[i].at, b.live[i].n = at, int64(len(frame))
	if points {
		point(ptBigWritten)
	}
	return nil
}

// bury does what the notes say: records that are pending no more are forgotten, and
// those of them that were evicted get a tombstone behind their frame.
func (b *bigFile) bury() error {
	b.noteMu.Lock()
	notes := b.notes
	b.notes = nil
	b.noteMu.Unlock()
	var marks []byte
	for _, note := range notes {
		if note.what == bigComes {
			b.live = append(b.live, bigFrame{ticket: note.ticket})
			continue
		}
		i := b.find(note.ticket)
		if i < 0 {
			continue
		}
		if note.what == bigEvicted && b.live[i].n > 0 {
			marks = appendBigFrame(marks, nil, batch.Slot{Ticket: note.ticket, Flags: crashfile.FlagEvicted})
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

func (f bigFrame) written() bool { return f.n > 0 }

// find returns which of live is that of a record, -1 if none is.
func (b *bigFile) find(ticket uint64) int {
	return slices.IndexFunc(b.live, func(f bigFrame) bool { return f.ticket == ticket })
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
	f, err := os.OpenFile(b.path+crashfile.NewSuffix, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(b.path + crashfile.NewSuffix)
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
	if points {
		point(ptBigCompact)
	}
	if err := os.Rename(b.path+crashfile.NewSuffix, b.path); err != nil {
		return err
	}
	b.f.Close()
	b.f, b.n, b.live = f, n, live
	return nil
}

// close lets go of the file, after bury. Calls that have not written their frame by then
// do not.
func (b *bigFile) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.f != nil {
		_ = b.bury() // if it fails they come back once more: never lost
		b.f.Close()
		b.f = nil
	}
}

// holds reports whether the frame of a record is in the file, which is closed.
func (b *bigFile) holds(ticket uint64) bool {
	i := b.find(ticket)
	return i >= 0 && b.live[i].written()
}

package crashfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/mapped"
	"github.com/forebay-log/forebay/internal/vfs"
)

// ErrNotSupported is wrapped by the error of [Create] on a platform without mapped files.
var ErrNotSupported = mapped.ErrNotSupported

// ErrInUse is wrapped by the error for a file that a running process uses.
var ErrInUse = mapped.ErrInUse

// A Layout describes a new crash-safe file.
type Layout struct {
	SlabBytes, SlabCount int
	Form                 Form
	Oversize             int              // limit in bytes of the pending records larger than a slab
	Dict                 batch.Dictionary // nil if streams have no definitions
}

// A Memory is the mapped file of this process. Each store into its slabs is immediately in the page
// cache, so the slabs outlive the process.
//
// The caller must hold its own lock during each call of a method, except Intact, Path and the
// methods of Big. A store into the mapping may cause a memory fault if the file was truncated: see
// [Memory.IsFault].
type Memory struct {
	Big BigFile // the companion file of records larger than a slab

	path    string
	f       *os.File // kept open while the process uses the file, because the open file holds the lock
	mem     []byte   // the mapping; nil after the last Leave
	state   *State
	id      [16]byte
	layout  Layout
	readers int // number of users of the mapping, see Enter

	evicted uint64 // number of tickets evicted by policy
	streams streamTable

	// unlisted are the tickets of expected frames that State.Big has no room for. State.BigMore is
	// their number.
	unlisted map[uint64]struct{}
}

// Create creates the file of this process in dir. It creates dir if it is missing. Initially, the
// mapping has one user: see [Memory.Enter].
func Create(dir string, l Layout) (*Memory, error) {
	size := Size(l.SlabBytes, l.SlabCount)
	if size > MaxBytes {
		return nil, fmt.Errorf("slab: %d slabs of %d bytes are more than the %d a crash-safe file holds", l.SlabCount, l.SlabBytes, MaxBytes)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("slab: %w", vfs.DirError(dir, err))
	}
	m := &Memory{layout: l, readers: 1, streams: streamTable{dict: l.Dict, known: map[uint32]bool{}}, unlisted: map[uint64]struct{}{}}
	if err := mapped.RandomID(&m.id); err != nil {
		return nil, err
	}
	m.path = filepath.Join(dir, fmt.Sprintf("%016x-%x%s", time.Now().UnixNano(), m.id[:4], Suffix))
	f, mem, err := mapped.Create(m.path+NewSuffix, int(size))
	if err != nil {
		return nil, fmt.Errorf("slab: cannot have crash-safe slabs in %s: %w", dir, err)
	}
	m.f, m.mem = f, mem
	m.Big.path = m.path + BigSuffix
	m.streams.path = m.path + StreamSuffix
	m.state = (*State)(unsafe.Pointer(&mem[Page]))
	m.writeIdentity()
	for i := range l.SlabCount {
		m.Head(i).First = ^uint64(0)
	}
	Point(PointCreate)
	if err := os.Rename(m.path+NewSuffix, m.path); err != nil { // the file is complete when it gets its final name
		os.Remove(m.path + NewSuffix)
		mapped.Unmap(mem)
		f.Close()
		return nil, fmt.Errorf("slab: cannot have crash-safe slabs in %s: %w", dir, err)
	}
	Point(PointCreated)
	return m, nil
}

// writeIdentity fills page 0, which does not change afterwards.
func (m *Memory) writeIdentity() {
	le, l := binary.LittleEndian, &m.layout
	b := make([]byte, Page)
	copy(b, Magic)
	le.PutUint32(b[IdentVersion:], Version)
	copy(b[IdentUUID:], m.id[:])
	boot := mapped.BootID()
	copy(b[IdentBoot:], boot[:])
	le.PutUint64(b[IdentCreated:], uint64(time.Now().UnixNano()))
	le.PutUint32(b[IdentPID:], uint32(os.Getpid()))
	le.PutUint32(b[IdentSlabBytes:], uint32(l.SlabBytes))
	le.PutUint32(b[IdentSlabCount:], uint32(l.SlabCount))
	le.PutUint32(b[IdentSchema:], l.Form.Schema)
	b[IdentType] = byte(min(len(l.Form.ContentType), 255))
	copy(b[IdentType+1:], l.Form.ContentType[:b[IdentType]])
	flags := uint32(FlagTracked)
	if l.Dict != nil {
		flags |= FlagStreams
	}
	le.PutUint32(b[IdentFlags:], flags)
	le.PutUint64(b[IdentOversize:], uint64(l.Oversize))
	le.PutUint32(b[IdentCRC:], crc32.Checksum(b[IdentCRC+4:], Castagnoli))
	copy(m.mem, b)
}

// Path returns the path of the file.
func (m *Memory) Path() string { return m.path }

// ID returns the id of the file, which is the origin of its records.
func (m *Memory) ID() [16]byte { return m.id }

// Bytes returns the mapping. It is nil after the last user has called Leave.
func (m *Memory) Bytes() []byte { return m.mem }

// State returns the words in page 1. They may be stored only with the caller's lock held.
func (m *Memory) State() *State { return m.state }

// Slab returns the memory of slab i.
func (m *Memory) Slab(i int) []byte {
	n := m.layout.SlabBytes
	at := HeadsOff + HeadsBytes(m.layout.SlabCount) + i*n
	return m.mem[at : at+n : at+n]
}

// Head returns the header of slab i.
func (m *Memory) Head(i int) *Head {
	return (*Head)(unsafe.Pointer(&m.mem[HeadsOff+i*HeadBytes]))
}

// Ack stores that all records with tickets up to t are delivered or dropped. It is called before
// their memory is reused.
func (m *Memory) Ack(t uint64) {
	atomic.StoreUint64(&m.state.Acked, t)
	Point(PointAckHalf)
	atomic.StoreUint64(&m.state.AckedToo, t)
}

// Evict adds n to the number of evicted records, so that recovery does not count them as
// unreturned.
func (m *Memory) Evict(n int) {
	m.evicted += uint64(n)
	StoreWord(&m.state.Evicted, m.evicted)
}

// Skip stores the number of evicted records that have tickets up to Acked.
func (m *Memory) Skip(n uint64) {
	if m.evicted > 0 {
		StoreWord(&m.state.Skipped, n)
	}
}

// SetAhead stores a number of records: those with tickets above Acked that are already delivered or
// dropped, and whose slabs were reused.
func (m *Memory) SetAhead(n uint64) { StoreWord(&m.state.Ahead, n) }

// SetHeapHeld stores the number of pending records larger than a slab that are in no file.
func (m *Memory) SetHeapHeld(n int) { StoreWord(&m.state.HeapHeld, uint64(n)) }

// SetHeapFrom stores that the records from ticket t on are not in the file.
func (m *Memory) SetHeapFrom(t uint64) { StoreWord(&m.state.HeapFrom, t) }

var (
	// ErrTruncated is the error of [Memory.Intact] for a file that was made shorter.
	ErrTruncated = errors.New("slab: the crash-safe file was truncated")
	errUnlinked  = errors.New("slab: the crash-safe file was deleted: no other process would find it")
)

// Intact returns an error unless the file has its full length, still has a name, and has an
// unchanged page 0. If the file was truncated and extended again, page 0 contains zeros.
func (m *Memory) Intact() error {
	st, err := m.f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("slab: cannot check the crash-safe file: %w", err)
	case st.Size() < Size(m.layout.SlabBytes, m.layout.SlabCount):
		return ErrTruncated
	case mapped.Links(st) == 0:
		return errUnlinked
	}
	var b [len(Magic)]byte
	if _, err := m.f.ReadAt(b[:], 0); err != nil || string(b[:]) != Magic {
		return ErrTruncated
	}
	return nil
}

// IsFault reports whether r, the result of recover, is a memory fault in the mapping.
func (m *Memory) IsFault(r any) bool {
	e, ok := r.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		return false
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(m.mem)))
	return e.Addr() >= start && e.Addr() < start+uintptr(len(m.mem))
}

// Enter adds a user of the mapping.
func (m *Memory) Enter() { m.readers++ }

// Leave removes a user of the mapping. When no user is left, it unmaps the memory. A Send that
// hangs counts as a user, so it can still read the mapping.
func (m *Memory) Leave() {
	if m.readers--; m.readers == 0 {
		mapped.Unmap(m.mem)
		m.mem, m.state = nil, nil
	}
}

// Remove deletes the file and releases its lock.
func (m *Memory) Remove() {
	m.Big.Close()
	m.streams.close()
	if m.inPlace() {
		Remove(m.path)
	}
	m.f.Close()
}

// Release releases the lock of the file. The file remains for the next process.
func (m *Memory) Release() {
	m.Big.Close()
	m.streams.close()
	mapped.Unlock(m.f)
	m.f.Close()
}

// inPlace reports whether the path still refers to this file. If that is unknown, inPlace returns
// true.
func (m *Memory) inPlace() bool {
	own, err1 := m.f.Stat()
	now, err2 := os.Lstat(m.path)
	return err1 != nil || err2 != nil || os.SameFile(own, now)
}

package slab

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/mapped"
)

// Crash makes the slabs of a [Writer] survive the death of the process: they lie
// in a file that is mapped into memory, so that a record is in the page cache,
// which outlives the process, as soon as its write has returned. Use [CrashSafe]
// to make one. The layout is docs/format/crash-slabs.md.
//
// It protects against SIGKILL, the OOM killer, panics, os.Exit and faults of the
// runtime. It does not protect against loss of power or a kernel crash. The file,
// with all slabs, must stay below 2 GiB.
//
// A record may arrive twice, at the seam between two processes: batch.Batch.Origin
// and its ticket tell. The borrower is lent a copy of what is mapped, one memcpy per slab:
// a file that somebody truncates under the mapping would end the process where another
// goroutine reads it.
type Crash struct {
	// Dir is required. It holds the file of this process and is searched for those of dead
	// ones. It is made, 0700, if it is missing. Give each output a directory of
	// its own: whoever looks into one first takes what it finds. A tmpfs is the
	// best place: write-back to a busy disk can stall a store into a mapped page.
	Dir string
	// Required makes New fail where the file cannot be had, and has a record refused,
	// as dropped{failed}, that is larger than a slab and finds no room on the disk.
	// Default false: New uses heap slabs, reports once, and Stats.CrashUnsafe says
	// why; such a record is in memory only, which Stats.HeapOnly counts.
	Required bool
	// Codec is asked about files of a content type, or of a newer schema, other
	// than that of Options.Codec. It returns the codec and true if the destination
	// takes such records as they are; their batches then carry that codec. Default
	// nil: such files are reported and stay where they are.
	Codec func(contentType string, schema uint32) (batch.Codec, bool)
}

// CrashSafe returns the option for slabs that survive the process, with files in
// dir. Linux and macOS; elsewhere New reports that and uses heap slabs or, with
// Required, fails with [ErrNotSupported].
func CrashSafe(dir string) *Crash { return &Crash{Dir: dir} }

// ErrNotSupported is wrapped by the error for crash-safe slabs on a platform
// that has none.
var ErrNotSupported = mapped.ErrNotSupported

// crashFile is the mapped file of this process.
type crashFile struct {
	path  string
	f     *os.File // holds the lock for life
	mem   []byte   // nil once it is given back
	state *crashfile.State
	uuid  [16]byte

	// broken: the mapping faulted; slabs are on the heap from then on. Guarded
	// by Writer.mu.
	broken error
	ended  bool        // Close has let go of the file; guarded by Writer.mu
	fault  atomic.Bool // broken is set
	big    bigFile
	blocks []*block    // all slabs of the file
	watch  *time.Timer // looks after records that are lent for long
	// readers counts who may read the mapping: the drain, the Writer until Close has
	// ended, and whoever makes a checksum. Guarded by Writer.mu.
	readers int

	// Guarded by Writer.mu, too.
	heapSpare []*block // for the slabs of a broken mapping, as they come back
	toBury    bool     // a record larger than a slab was evicted since the lock was taken
	heapOnly  int      // oversize records pending that have no copy on disk
	evicted   uint64   // tickets evicted by policy
	ahead     uint64   // records whose slabs were freed before those of records of lower tickets

	streamTable
	bigTable
}

// openCrash creates the file of this process.
func openCrash(o *Options, form form, dict batch.Dictionary) (*crashFile, []*block, error) {
	size := crashfile.Size(o.SlabBytes, o.SlabCount)
	if size > crashfile.MaxBytes {
		return nil, nil, fmt.Errorf("slab: %d slabs of %d bytes are more than the %d a crash-safe file holds", o.SlabCount, o.SlabBytes, crashfile.MaxBytes)
	}
	if err := os.MkdirAll(o.Crash.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("slab: cannot make the directory for crash-safe slabs: %w", err)
	}
	c := &crashFile{readers: 2, streamTable: streamTable{dict: dict, known: map[uint32]bool{}}, bigTable: newBigTable()}
	if err := mapped.RandomID(&c.uuid); err != nil {
		return nil, nil, err
	}
	c.path = filepath.Join(o.Crash.Dir, fmt.Sprintf("%016x-%x%s", time.Now().UnixNano(), c.uuid[:4], crashfile.Suffix))
	f, mem, err := mapped.Create(c.path+crashfile.NewSuffix, int(size))
	if err != nil {
		return nil, nil, fmt.Errorf("slab: cannot have crash-safe slabs in %s: %w", o.Crash.Dir, err)
	}
	c.f, c.mem = f, mem
	c.big.path = c.path + crashfile.BigSuffix
	c.streamTable.path = c.path + crashfile.StreamSuffix
	c.state = (*crashfile.State)(unsafe.Pointer(&mem[crashfile.Page]))
	c.writeIdentity(o, form)
	if points {
		point(ptCreate)
	}
	if err := os.Rename(c.path+crashfile.NewSuffix, c.path); err != nil { // complete from its first moment
		os.Remove(c.path + crashfile.NewSuffix)
		mapped.Unmap(mem)
		f.Close()
		return nil, nil, fmt.Errorf("slab: cannot have crash-safe slabs in %s: %w", o.Crash.Dir, err)
	}
	if points {
		point(ptCreated)
	}

	heads := unsafe.Slice((*crashfile.Head)(unsafe.Pointer(&mem[crashfile.HeadsOff])), o.SlabCount)
	base := crashfile.HeadsOff + crashfile.HeadsBytes(o.SlabCount)
	blocks := make([]*block, o.SlabCount)
	for i := range blocks {
		m := mem[base+i*o.SlabBytes : base+(i+1)*o.SlabBytes : base+(i+1)*o.SlabBytes]
		slots := unsafe.Slice((*batch.Slot)(unsafe.Pointer(&m[0])), len(m)/batch.SlotBytes)
		heads[i].First = ^uint64(0)
		blocks[i] = &block{mem: m, slots: slots, head: &heads[i]}
		blocks[i].aim()
	}
	c.blocks = slices.Clone(blocks)
	return c, blocks, nil
}

// writeIdentity fills page 0.
func (c *crashFile) writeIdentity(o *Options, form form) {
	le := binary.LittleEndian
	b := make([]byte, crashfile.Page)
	copy(b, crashfile.Magic)
	le.PutUint32(b[crashfile.IdentVersion:], crashfile.Version)
	copy(b[crashfile.IdentUUID:], c.uuid[:])
	boot := mapped.BootID()
	copy(b[crashfile.IdentBoot:], boot[:])
	le.PutUint64(b[crashfile.IdentCreated:], uint64(time.Now().UnixNano()))
	le.PutUint32(b[crashfile.IdentPID:], uint32(os.Getpid()))
	le.PutUint32(b[crashfile.IdentSlabBytes:], uint32(o.SlabBytes))
	le.PutUint32(b[crashfile.IdentSlabCount:], uint32(o.SlabCount))
	le.PutUint32(b[crashfile.IdentSchema:], form.schema)
	b[crashfile.IdentType] = byte(min(len(form.contentType), 255))
	copy(b[crashfile.IdentType+1:], form.contentType[:b[crashfile.IdentType]])
	flags := uint32(crashfile.FlagTracked)
	if c.dict != nil {
		flags |= crashfile.FlagStreams
	}
	le.PutUint32(b[crashfile.IdentFlags:], flags)
	le.PutUint64(b[crashfile.IdentOversize:], uint64(o.budget()))
	le.PutUint32(b[crashfile.IdentCRC:], crc32.Checksum(b[crashfile.IdentCRC+4:], crashfile.Castagnoli))
	copy(c.mem, b)
}

// ack notes that every ticket up to t is settled. It must come before the memory
// of those records is used again.
func (c *crashFile) ack(t uint64) {
	atomic.StoreUint64(&c.state.Acked, t)
	if points {
		point(ptAckHalfLocked)
	}
	atomic.StoreUint64(&c.state.AckedToo, t)
}

// inPlace reports whether the file of that name is still this one.
func (c *crashFile) inPlace() bool {
	own, err1 := c.f.Stat()
	now, err2 := os.Lstat(c.path)
	return err1 != nil || err2 != nil || os.SameFile(own, now)
}

// leaveMapping is called by one of readers, with Writer.mu held, who will not look into
// mapped memory again. The last one gives it back: a Send that hangs keeps it.
func (c *crashFile) leaveMapping() {
	if c.readers--; c.readers == 0 {
		mapped.Unmap(c.mem)
		c.mem, c.state = nil, nil
	}
}

// remove unlinks the file and lets go of the lock.
func (c *crashFile) remove() {
	c.big.close()
	c.streamTable.close()
	if c.inPlace() {
		crashfile.Remove(c.path)
	}
	c.f.Close()
}

// release lets go of the lock and leaves the file for the next process.
func (c *crashFile) release() {
	c.big.close()
	c.streamTable.close()
	mapped.Unlock(c.f)
	c.f.Close()
}

// placeGuardedLocked is placeLocked into mapped memory. A fault in it (somebody
// truncated the file) becomes a panic, which moves the slabs to the heap; then
// the record is placed there.
func (w *Writer) placeGuardedLocked(p []byte, m batch.Meta) bool {
	next := w.next
	placed, faulted := w.tryMappedLocked(p, m)
	if faulted {
		w.next = next // the ticket of a record that was not stored is given out again
		return w.placeLocked(p, m)
	}
	return placed
}

func (w *Writer) tryMappedLocked(p []byte, m batch.Meta) (placed, faulted bool) {
	next := w.next
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			if !w.isFault(r) {
				w.next = next // what was not stored has no ticket
			}
			w.caught(r)
			faulted = true
		}
	}(debug.SetPanicOnFault(true))
	return w.placeLocked(p, m), false
}

// catchFault is deferred by code that touches mapped memory with mu held.
func (w *Writer) catchFault(old bool, faulted *bool) {
	debug.SetPanicOnFault(old)
	if r := recover(); r != nil {
		w.caught(r)
		*faulted = true
	}
}

// passFault is deferred by code that only looks at mapped memory: a fault ends that
// code, which says so by its zero result, and nothing else.
func (w *Writer) passFault(old bool) {
	debug.SetPanicOnFault(old)
	if r := recover(); r != nil && !w.isFault(r) {
		panic(r)
	}
}

// caught deals with a recovered panic: after a fault in mapped memory the slabs are
// on the heap, any other goes on. mu is held.
func (w *Writer) caught(r any) {
	if !w.isFault(r) {
		panic(r)
	}
	w.toHeapLocked(fmt.Errorf("slab: the mapped file %s is damaged: %v", w.crash.path, r))
}

// isFault reports whether a recovered value is a memory fault in the mapping.
func (w *Writer) isFault(r any) bool {
	e, ok := r.(interface {
		error
		Addr() uintptr
	})
	if !ok || w.crash == nil {
		return false
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(w.crash.mem)))
	return e.Addr() >= start && e.Addr() < start+uintptr(len(w.crash.mem))
}

// toHeapLocked goes on with heap slabs after a fault. What can still be read is
// copied; what cannot is dropped as corrupt.
func (w *Writer) toHeapLocked(cause error) {
	c := w.crash
	if c.broken != nil || c.mem == nil || c.ended {
		return
	}
	c.broken = cause
	c.fault.Store(true)
	w.noteHeapFromLocked()
	w.events.Post(batch.Event{Output: w.o.Name, Op: "crash-safe", Err: cause})
	if w.life == retained { // nobody writes any more
		w.unretainLocked()
		return
	}
	heap := newSlabs(0, w.o.SlabCount)
	take := func() *block {
		b := heap[len(heap)-1]
		heap = heap[:len(heap)-1]
		b.reset(0)
		return b
	}
	for i := range w.pool.free {
		w.pool.free[i] = take()
	}
	for i := range w.pool.ceded {
		w.pool.ceded[i] = take()
	}
	if b := w.cur; b != nil {
		w.cutLocked()
		b.retired = true
		w.cur = nil
		if b.refs == 0 {
			w.pool.free = append(w.pool.free, take())
		}
	}
	w.crash.heapSpare = heap
	for i := 0; i < w.queue.n; {
		p := w.queue.at(i)
		if p.blk.kind == oversize || w.rescueLocked(p) {
			i++
			continue
		}
		w.queue.remove(i)
		w.countDropLocked(batch.Corrupt, p.len())
		w.releaseLocked(p)
	}
	w.setRoomLocked()
}

// rescueLocked copies a queued piece to the heap. It reports false if the memory
// cannot be read.
func (w *Writer) rescueLocked(p *piece) (ok bool) {
	defer w.passFault(debug.SetPanicOnFault(true))
	if !p.sound() {
		return false
	}
	r := p.run()
	data := append([]byte(nil), r.Data()...)
	slots := make([]batch.Slot, p.len())
	for i := range slots {
		s := *r.Slot(i)
		s.Off -= r.Slot(0).Off
		slots[len(slots)-1-i] = s
	}
	b := &block{mem: data, slots: slots, off: len(data), n: len(slots), cut: len(slots), refs: 1, retired: true, kind: rescued}
	src := p.blk
	p.blk, p.from, p.to = b, 0, len(slots)
	w.dropRefLocked(src)
	return true
}

// sound reports whether the index of a piece is as it was written. A file that was
// truncated and made longer again has zeros from some point on, and the index of a
// slab lies behind what it describes. No ticket is 0: then first was read from zeros.
func (p *piece) sound() bool {
	return p.from == p.to || p.first != 0 && p.blk.slot(p.from).Ticket == p.first
}

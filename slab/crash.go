package slab

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
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

// The file, little-endian:
//
//	page 0            identity, written once, CRC32C over it
//	page 1            state: words that change, each on its own cache line
//	dictionary        64 KiB: stream definitions, appended, length in the state
//	slab headers      64 B each
//	slabs             as in memory
const (
	crashMagic    = "FBSLAB1\n"
	crashVersion  = 2 // of what is written; version 1 is read, too
	crashPage     = 4096
	crashDictOff  = 2 * crashPage
	crashDictLen  = 64 << 10
	crashHeadsOff = crashDictOff + crashDictLen
	crashSuffix   = ".slab"
	bigSuffix     = ".big"
	streamSuffix  = ".streams"
	newSuffix     = ".new"
	badSuffix     = ".damaged"
	maxCrashBytes = 1<<31 - 1
)

// Where what lies in page 0, after the magic.
const (
	identVersion   = 8
	identCRC       = 12 // of all that follows it
	identUUID      = 16
	identBoot      = 32
	identCreated   = 48
	identPID       = 56
	identSlabBytes = 60
	identSlabCount = 64
	identSchema    = 68
	identType      = 72 // its length, then the content type, 255 bytes at most
	identFlags     = 336
	identOversize  = 344
)

// Flags of page 0.
const (
	flagStreams = 1 << iota // every stream of a record is in the dictionary
	flagTracked             // the state names the oversize records beside the file
)

// crashState is page 1. Each word is stored atomically, with Writer.mu held, and all but
// acked and ackedToo by storeWord.
type crashState struct {
	acked    uint64 // every ticket up to it is settled
	ackedToo uint64 // the same, stored after it: the lower of the two counts
	_        [48]byte
	heapHeld uint64 // oversize records pending that are in this process's heap only
	heapFrom uint64 // 0, or: records with this ticket and later ones are on the heap
	_        [48]byte
	dictLen  uint64 // bytes of the dictionary that are valid
	_        [56]byte
	evicted  uint64 // records that DropOldest evicted so far
	skipped  uint64 // as many of them have tickets up to acked
	_        [48]byte
	damaged  uint64 // set by who recovers: records that were lost to damage, at least 1
	bigMore  uint64 // records with a frame beside the file that are not in big
	_        [stateBig - 272]byte
	big      [bigTracked]uint64 // tickets of pending records with a frame beside the file; 0: none
}

// Where what of the state lies in its page.
const (
	stateAcked    = unsafe.Offsetof(crashState{}.acked)
	stateAckedToo = unsafe.Offsetof(crashState{}.ackedToo)
	stateHeapHeld = unsafe.Offsetof(crashState{}.heapHeld)
	stateHeapFrom = unsafe.Offsetof(crashState{}.heapFrom)
	stateDictLen  = unsafe.Offsetof(crashState{}.dictLen)
	stateEvicted  = unsafe.Offsetof(crashState{}.evicted)
	stateSkipped  = unsafe.Offsetof(crashState{}.skipped)
	stateDamaged  = unsafe.Offsetof(crashState{}.damaged)
	stateBigMore  = unsafe.Offsetof(crashState{}.bigMore)
	stateBig      = 1024
)

// bigTracked is how many oversize records the state names.
const bigTracked = (crashPage - stateBig) / 8

// The files of other processes are read by these sizes: this does not build where
// memory is laid out in another way.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(slabHead{})-headBytes]
	_ = [1]struct{}{}[unsafe.Sizeof(crashState{})-crashPage]
	_ = [1]struct{}{}[unsafe.Offsetof(crashState{}.big)-stateBig]
)

// headBytes is the size of a slabHead.
const headBytes = 64

// headsBytes is how much the headers of so many slabs take in the file.
func headsBytes(slabCount int) int { return roundUp(headBytes*slabCount, crashPage) }

// slabHead is the header of one slab.
type slabHead struct {
	// first is the lowest ticket the slab may hold: older slots are leftovers of
	// an earlier use, which is why nothing needs to be zeroed.
	first uint64
	// old is read only: where a process of an earlier version died while DropOldest
	// was writing over a slab, it has the slots [from, to) that were left of its
	// older records, as from<<32 | to. 0: none.
	old uint64
	// sum is the number of slots of a sealed slab <<32 | CRC32C over its payload,
	// those slots, first and last. 0: none, the tickets alone vouch for the slab.
	sum uint64
	// last is the ticket of the last of those slots.
	last uint64
	_    [32]byte
}

// crashFile is the mapped file of this process.
type crashFile struct {
	path  string
	f     *os.File // holds the lock for life
	mem   []byte   // nil once it is given back
	state *crashState
	uuid  [16]byte

	// broken: the mapping faulted; slabs are on the heap from then on. Guarded
	// by Writer.mu.
	broken error
	ended  bool        // Close has let go of the file; guarded by Writer.mu
	fault  atomic.Bool // broken is set
	big    bigFile
	watch  *time.Timer // looks after a Send that takes long
	// readers counts who may read the mapping: the drain, the Writer until Close has
	// ended, and whoever makes a checksum. Guarded by Writer.mu.
	readers int
	streamTable
	bigTable
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

func crashSize(slabBytes, slabCount int) int64 {
	return int64(crashHeadsOff+headsBytes(slabCount)) + int64(slabBytes)*int64(slabCount)
}

// openCrash creates the file of this process.
func openCrash(o *Options, form form, dict batch.Dictionary) (*crashFile, []*block, error) {
	size := crashSize(o.SlabBytes, o.SlabCount)
	if size > maxCrashBytes {
		return nil, nil, fmt.Errorf("slab: %d slabs of %d bytes are more than the %d a crash-safe file holds", o.SlabCount, o.SlabBytes, maxCrashBytes)
	}
	if err := os.MkdirAll(o.Crash.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("slab: cannot make the directory for crash-safe slabs: %w", err)
	}
	c := &crashFile{readers: 2, streamTable: streamTable{dict: dict, known: map[uint32]bool{}}, bigTable: newBigTable()}
	if err := mapped.RandomID(&c.uuid); err != nil {
		return nil, nil, err
	}
	c.path = filepath.Join(o.Crash.Dir, fmt.Sprintf("%016x-%x%s", time.Now().UnixNano(), c.uuid[:4], crashSuffix))
	f, mem, err := mapped.Create(c.path+newSuffix, int(size))
	if err != nil {
		return nil, nil, fmt.Errorf("slab: cannot have crash-safe slabs in %s: %w", o.Crash.Dir, err)
	}
	c.f, c.mem = f, mem
	c.big.path = c.path + bigSuffix
	c.streamTable.path = c.path + streamSuffix
	c.state = (*crashState)(unsafe.Pointer(&mem[crashPage]))
	c.writeIdentity(o, form)
	if points {
		point(ptCreate)
	}
	if err := os.Rename(c.path+newSuffix, c.path); err != nil { // complete from its first moment
		os.Remove(c.path + newSuffix)
		mapped.Unmap(mem)
		f.Close()
		return nil, nil, fmt.Errorf("slab: cannot have crash-safe slabs in %s: %w", o.Crash.Dir, err)
	}
	if points {
		point(ptCreated)
	}

	heads := unsafe.Slice((*slabHead)(unsafe.Pointer(&mem[crashHeadsOff])), o.SlabCount)
	base := crashHeadsOff + headsBytes(o.SlabCount)
	blocks := make([]*block, o.SlabCount)
	for i := range blocks {
		m := mem[base+i*o.SlabBytes : base+(i+1)*o.SlabBytes : base+(i+1)*o.SlabBytes]
		slots := unsafe.Slice((*batch.Slot)(unsafe.Pointer(&m[0])), len(m)/batch.SlotBytes)
		heads[i].first = ^uint64(0)
		blocks[i] = &block{mem: m, slots: slots, head: &heads[i]}
		blocks[i].aim()
	}
	return c, blocks, nil
}

// writeIdentity fills page 0.
func (c *crashFile) writeIdentity(o *Options, form form) {
	le := binary.LittleEndian
	b := make([]byte, crashPage)
	copy(b, crashMagic)
	le.PutUint32(b[identVersion:], crashVersion)
	copy(b[identUUID:], c.uuid[:])
	boot := mapped.BootID()
	copy(b[identBoot:], boot[:])
	le.PutUint64(b[identCreated:], uint64(time.Now().UnixNano()))
	le.PutUint32(b[identPID:], uint32(os.Getpid()))
	le.PutUint32(b[identSlabBytes:], uint32(o.SlabBytes))
	le.PutUint32(b[identSlabCount:], uint32(o.SlabCount))
	le.PutUint32(b[identSchema:], form.schema)
	b[identType] = byte(min(len(form.contentType), 255))
	copy(b[identType+1:], form.contentType[:b[identType]])
	flags := uint32(flagTracked)
	if c.dict != nil {
		flags |= flagStreams
	}
	le.PutUint32(b[identFlags:], flags)
	le.PutUint64(b[identOversize:], uint64(o.budget()))
	le.PutUint32(b[identCRC:], crc32.Checksum(b[identCRC+4:], castagnoli))
	copy(c.mem, b)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ack notes that every ticket up to t is settled. It must come before the memory
// of those records is used again.
func (c *crashFile) ack(t uint64) {
	atomic.StoreUint64(&c.state.acked, t)
	if points {
		point(ptAckHalfLocked)
	}
	atomic.StoreUint64(&c.state.ackedToo, t)
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
		removeCrash(c.path)
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

// removeCrash unlinks a crash-safe file and what belongs to it, that itself last:
// a kill on the way leaves a file of which everything is settled.
func removeCrash(path string) {
	if points {
		point(ptUnlink)
	}
	os.Remove(path + bigSuffix + newSuffix)
	os.Remove(path + bigSuffix)
	os.Remove(path + streamSuffix)
	if points {
		point(ptUnlinkBetween)
	}
	os.Remove(path)
	if points {
		point(ptUnlinked)
	}
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
	if c.broken != nil || c.mem == nil {
		return
	}
	c.broken = cause
	c.fault.Store(true)
	w.noteHeapFromLocked()
	w.events.Post(batch.Event{Output: w.o.Name, Op: "crash-safe", Err: cause})
	heap := newSlabs(0, w.o.SlabCount)
	take := func() *block {
		b := heap[len(heap)-1]
		heap = heap[:len(heap)-1]
		b.reset(0)
		return b
	}
	for i := range w.free {
		w.free[i] = take()
	}
	for i := range w.ceded {
		w.ceded[i] = take()
	}
	if b := w.cur; b != nil {
		w.cutLocked()
		b.retired = true
		w.cur = nil
		if b.refs == 0 {
			w.free = append(w.free, take())
		}
	}
	w.heapSpare = heap
	for i := 0; i < w.queue.n; {
		p := w.queue.at(i)
		if p.blk.oversize || w.rescueLocked(p) {
			i++
			continue
		}
		w.queue.remove(i)
		w.unqueueLocked(p)
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
	b := &block{mem: data, slots: slots, off: len(data), n: len(slots), cut: len(slots), refs: 1, retired: true, rescued: true}
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

package crashfile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/mapped"
)

// An Image is the content of a crash-safe file.
type Image struct {
	UUID        [16]byte
	BootID      [16]byte
	Created     int64 // time of creation in Unix nanoseconds
	PID         uint32
	ContentType string
	Schema      uint32
	Acked       uint64 // records up to this ticket were delivered or dropped, and are omitted
	Streams     map[uint32][]byte
	// Records are the accepted records that were neither delivered nor dropped, in the order of
	// their tickets. Their Data is memory of the image. (UUID, Ticket) identifies a record
	// permanently.
	Records []batch.Record
	// Oversize is the number of Records larger than a slab.
	Oversize uint64

	// Holes is the number of tickets without a record between Acked and the last record. The other
	// fields divide it by cause. Evicted: evicted by DropOldest. Settled: delivered or dropped
	// before records with lower tickets. HeapOnly: larger than a slab and only in the memory of the
	// process. Damaged: in slabs with a wrong checksum, or in damaged frames. Unreturned: records
	// of calls that had not returned.
	Holes, Evicted, Settled, HeapOnly, Damaged, Unreturned uint64
	// DamagedSlabs is the number of slabs with a wrong checksum. Their records are omitted.
	DamagedSlabs int
	// DamagedState is the number of damaged words in the state page. It means no loss of records,
	// but counts in the Image may be too low, and records may be delivered twice.
	DamagedState int
	// MovedToHeap reports whether a memory fault in the mapping made the process continue in
	// ordinary memory. Later records are not in the file.
	MovedToHeap bool

	// DamagedBig is the part of Damaged for records larger than a slab, whose frames in the
	// companion file are damaged or missing. Zeroed is the part of Damaged for records in pages
	// that never reached the disk.
	DamagedBig, Zeroed uint64
	// DamagedBefore is the number of further records that an earlier, interrupted recovery
	// could not read.
	DamagedBefore uint64
	// Undefined is the number of Records whose stream has no entry in the file, see
	// [Image.Defined].
	Undefined uint64
	// OtherBoot reports whether the machine has restarted since the file was used. Pages that had
	// not reached the disk are then missing.
	OtherBoot bool

	// Fields from the identity page.
	streams   bool   // stream numbers have definitions
	tracked   bool   // bigWant and bigMore are valid
	sealed    bool   // the state words are self-checking
	oversize  uint64 // limit of the bytes of pending oversize records
	slab      int    // size of a slab in bytes
	slabCount int

	// Fields from the state page and the slabs.
	plain       []uint32        // streams without a definition
	ackedTop    uint64          // the higher of Acked and AckedToo
	anyHoles    bool            // the number of evicted records is unknown
	maxRecords  uint64          // the number of records that the file can hold
	bigWant     map[uint64]bool // tickets of oversize records whose frames are not found yet
	bigMore     uint64          // number of further such records, whose tickets are not known
	unnamed     []uint64        // tickets of found frames that are not in bigWant
	damagedMark uint64          // number of records that earlier recoveries could not read
	checkZero   bool            // pages of the current slab may be missing
	evictedBig  map[uint64]bool // tickets of evicted oversize records
}

// ErrDamaged is wrapped by the error for a crash-safe file that cannot be read.
var ErrDamaged = errors.New("slab: damaged crash-safe file")

// errNewer is wrapped by the error for a file that a later version has written.
var errNewer = errors.New("slab: a later version has written this crash-safe file")

// damagedError returns an error that wraps ErrDamaged.
func damagedError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Read reads the crash-safe file at path and its companion files. It acquires no lock. If the
// file's process is running, the result may mix several moments; see [ReadLive].
func Read(path string) (*Image, error) {
	f, err := mapped.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("slab: cannot read crash-safe file: %w", err)
	}
	defer f.Close()
	return readImage(f, path)
}

// readImage reads the open file f, at path, and its companion files. It checks the identity before
// it reads more, because an unrelated file may be large.
func readImage(f *os.File, path string) (*Image, error) {
	data, err := readBounded(f, Page)
	var im *Image
	if err == nil {
		im, err = parseIdentity(data)
	}
	if err == nil {
		if data, err = readBounded(f, im.size()); err == nil {
			err = im.parse(data)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("slab: cannot read crash-safe file %s: %w", path, err)
	}
	streams, err := readCompanion(path+StreamSuffix, MaxStreamBytes)
	if err != nil {
		return nil, err
	}
	// The companion file contains at most twice the limit of pending records, one more frame, and
	// tombstones.
	big, err := readCompanion(path+BigSuffix, min(4*int64(im.oversize)+1<<20, MaxBytes))
	if err != nil {
		return nil, err
	}
	im.addCompanions(streams, big)
	return im, nil
}

// Parse parses the contents of a file and of its two companion files, which contain stream
// definitions and oversize records.
func Parse(data, streams, big []byte) (*Image, error) {
	im, err := parseIdentity(data)
	if err == nil {
		err = im.parse(data)
	}
	if err != nil {
		return nil, err
	}
	im.addCompanions(streams, big)
	return im, nil
}

// addCompanions adds the contents of the companion files and completes the image.
func (im *Image) addCompanions(streams, big []byte) {
	im.parseStreams(streams)
	im.parseBig(big)
	im.finish()
}

// readCompanion reads a companion file, up to limit bytes. A file that does not exist, or is not a
// regular file, is read as empty.
func readCompanion(path string, limit int64) ([]byte, error) {
	f, err := mapped.OpenRegular(path, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, mapped.ErrNotRegular) {
		return nil, nil
	}
	var data []byte
	if err == nil {
		defer f.Close()
		data, err = readBounded(f, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("slab: cannot read a companion file of a crash-safe file: %w", err)
	}
	return data, nil
}

// readBounded reads f from the start, up to limit bytes. If the file shrinks during the call, it
// returns the bytes that it has read.
func readBounded(f *os.File, limit int64) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, min(st.Size(), limit))
	n, err := io.ReadFull(io.NewSectionReader(f, 0, int64(len(data))), data)
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		err = nil
	}
	return data[:n], err
}

// size returns the size in bytes of the file that the identity describes.
func (im *Image) size() int64 { return Size(im.slab, im.slabCount) }

// parseIdentity returns an Image with the identity, which is page 0 of data.
func parseIdentity(data []byte) (*Image, error) {
	if len(data) < Page {
		return nil, damagedError("it has %d bytes, too few for its header", len(data))
	}
	le := binary.LittleEndian
	if string(data[:8]) != Magic {
		return nil, damagedError("it does not begin with %q", Magic)
	}
	version := le.Uint32(data[IdentVersion:])
	switch {
	case version > Version:
		return nil, fmt.Errorf("%w: it has version %d, but this program reads version %d", errNewer, version, Version)
	case version == 0:
		return nil, damagedError("it has version %d, but this program reads version %d", version, Version)
	case crc32.Checksum(data[IdentCRC+4:Page], Castagnoli) != le.Uint32(data[IdentCRC:]):
		return nil, damagedError("the checksum of the header is wrong")
	}
	flags := le.Uint32(data[IdentFlags:])
	im := &Image{
		UUID: [16]byte(data[IdentUUID:]), BootID: [16]byte(data[IdentBoot:]),
		Created: int64(le.Uint64(data[IdentCreated:])), PID: le.Uint32(data[IdentPID:]), Schema: le.Uint32(data[IdentSchema:]),
		ContentType: string(data[IdentType+1:][:data[IdentType]]),
		Streams:     map[uint32][]byte{}, bigWant: map[uint64]bool{}, evictedBig: map[uint64]bool{},
		streams: flags&FlagStreams != 0, tracked: flags&FlagTracked != 0, sealed: version > 1,
		oversize: min(le.Uint64(data[IdentOversize:]), MaxBytes),
		slab:     int(le.Uint32(data[IdentSlabBytes:])), slabCount: int(le.Uint32(data[IdentSlabCount:])),
	}
	if im.slab < layout.MinSlabBytes || im.slab > layout.MaxSlabBytes || im.slab%layout.SlotBytes != 0 ||
		im.slabCount < 2 || im.slabCount > layout.MaxSlabCount || im.size() > MaxBytes {
		return nil, damagedError("%d slabs of %d bytes are not valid", im.slabCount, im.slab)
	}
	boot := mapped.BootID()
	im.OtherBoot = boot != [16]byte{} && im.BootID != [16]byte{} && boot != im.BootID
	return im, nil
}

// parse reads the state, the dictionary and every slab of data, which is the whole file. At this
// point, only the checksum of the identity is verified. Therefore parse accepts a slot only if it
// starts where the previous one ended and its ticket can belong to the current use of the slab.
func (im *Image) parse(data []byte) error {
	slabBytes, count := im.slab, im.slabCount
	if want := im.size(); int64(len(data)) < want {
		return damagedError("it has %d bytes, but its slabs need %d", len(data), want)
	}
	le := binary.LittleEndian
	state := data[Page : 2*Page]
	read := func(at uintptr, most uint64) (uint64, bool) { return im.read(le.Uint64(state[at:]), most) }
	im.Acked = le.Uint64(state[StateAcked:])
	im.ackedTop = im.Acked
	// If Acked were too high, records would be lost. If it is too low, some records are delivered
	// twice. Therefore the lower value is used.
	if too := le.Uint64(state[StateAckedToo:]); im.tracked {
		im.Acked, im.ackedTop = min(im.Acked, too), max(im.Acked, too)
		if im.Acked != too { // Acked and AckedToo differ after a kill between the two stores
			im.DamagedState++
		}
	}
	most := ^uint64(0)
	im.HeapOnly, _ = read(StateHeapHeld, im.maxBig())
	from, _ := read(StateHeapFrom, most)
	im.MovedToHeap = from != 0
	evicted, ok1 := read(StateEvicted, most)
	skipped, ok2 := read(StateSkipped, most)
	im.Evicted, im.anyHoles = evicted-min(evicted, skipped), !ok1 || !ok2
	im.Settled, _ = read(StateAhead, most)
	dict, ok := read(StateDictLen, DictLen)
	im.parseDict(data[DictOff:DictOff+DictLen], dict, ok)
	im.maxRecords = im.maxBig() + uint64(slabBytes/layout.SlotBytes*count)
	im.damagedMark, _ = read(StateDamaged, im.maxRecords)
	if im.tracked {
		im.parseBigTable(state, im.maxBig())
	}
	base := HeadsOff + HeadsBytes(count)
	// The slabs are read in ticket order, so that the records are almost sorted.
	order := make([]int, count)
	for i := range order {
		order[i] = i
	}
	first := func(i int) uint64 { return le.Uint64(data[HeadsOff+HeadBytes*i:]) }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(first(a), first(b)) })
	for k, i := range order {
		if n := len(im.Records); k > 0 && n > 0 && n+n/k > cap(im.Records) { // assume that the remaining slabs have as many records as the previous ones
			im.Records = slices.Grow(im.Records, min(n/k*(count-k+1), len(data)/layout.SlotBytes)+1)
		}
		im.parseSlab(data[base+i*slabBytes:base+(i+1)*slabBytes], data[HeadsOff+HeadBytes*i:])
	}
	return nil
}

// parseSlab reads the records of one slab. Its first slot is at the end of the slab. parseSlab
// stops at the first slot whose ticket is not higher than the previous one. In a sealed slab, it
// reads only the slots that the checksum covers, and no records if the checksum is wrong.
func (im *Image) parseSlab(mem, head []byte) {
	le := binary.LittleEndian
	first, old, sum, last := le.Uint64(head), le.Uint64(head[8:]), le.Uint64(head[16:]), le.Uint64(head[24:])
	n := len(mem) / layout.SlotBytes
	switch {
	case sum == 0:
	case checksumMatches(mem, first, last, sum):
		n, old = int(sum>>32), 0
	default:
		if last > im.Acked {
			im.DamagedSlabs++
			im.Damaged += min(sum>>32, last-im.Acked, uint64(n))
		}
		return
	}
	im.checkZero = im.OtherBoot && sum == 0
	if first != ^uint64(0) && first != 0 {
		im.parseSlots(mem, 0, n, first)
	}
	if from, to := int(old>>32), int(uint32(old)); from < to && to <= n {
		im.parseSlots(mem, from, to, 1)
	}
}

// checksumMatches reports whether the checksum of a sealed slab is right.
func checksumMatches(mem []byte, first, last, sum uint64) bool {
	n := sum >> 32
	if n == 0 || n > uint64(len(mem)/layout.SlotBytes) {
		return false
	}
	slots := mem[len(mem)-int(n)*layout.SlotBytes:]
	end := uint64(binary.LittleEndian.Uint32(slots[16:])) + uint64(binary.LittleEndian.Uint32(slots[20:]))
	if end > uint64(len(mem)-len(slots)) {
		return false
	}
	return Sum(first, last, mem[:end], slots) == uint32(sum)
}

// parseSlots adds the records of the slots with numbers in [from, to), counted from the end of the
// slab. No record may have a ticket lower than the parameter first. parseSlots stops at a slot that
// does not continue the previous one, because it is left over from an earlier use of the slab.
func (im *Image) parseSlots(mem []byte, from, to int, first uint64) {
	le := binary.LittleEndian
	prev, end := first-1, -1
	if from == 0 {
		end = 0
	}
	for k := from; k < to; k++ {
		at := len(mem) - (k+1)*layout.SlotBytes
		if at < 0 {
			return
		}
		s := mem[at : at+layout.SlotBytes]
		ticket := le.Uint64(s)
		off, size := uint64(le.Uint32(s[16:])), uint64(le.Uint32(s[20:]))
		if ticket <= prev || end >= 0 && off != uint64(end) || off+size > uint64(at) {
			return
		}
		prev, end = ticket, int(off+size)
		if ticket <= im.Acked {
			continue
		}
		if im.checkZero && zeroPage(mem, int(off), int(off+size)) {
			im.Zeroed++
			im.Damaged++
			continue
		}
		im.Records = append(im.Records, batch.Record{
			Data: mem[off : off+size : off+size], Ticket: ticket,
			Meta: slotMeta(s),
		})
	}
}

// zeroPage reports whether part of a record is in a page of zeros. The content of such a page was
// probably never written to the disk. Half a page of zeros counts as a page, because a slab need not
// begin at the start of a page.
func zeroPage(mem []byte, from, to int) bool {
	const half = Page / 2
	for at := from / half * half; at < to; at += half {
		end := min(at+half, len(mem))
		if lo, hi := max(at, from), min(end, to); isZero(mem[lo:hi]) && isZero(mem[at:end]) {
			return true
		}
	}
	return false
}

// isZero reports whether b is not empty and contains only zeros.
func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return len(b) > 0
}

// slotMeta returns the Meta stored in the slot s.
func slotMeta(s []byte) batch.Meta {
	le := binary.LittleEndian
	return batch.Meta{Time: int64(le.Uint64(s[8:])), Stream: le.Uint32(s[24:]), Level: slog.Level(int8(s[28]))}
}

// finish sorts the records, removes evicted ones, and counts the holes by cause.
func (im *Image) finish() {
	if len(im.evictedBig) > 0 {
		im.Records = slices.DeleteFunc(im.Records, func(r batch.Record) bool { return im.evictedBig[r.Ticket] })
	}
	byTicket := func(a, b batch.Record) int { return cmp.Compare(a.Ticket, b.Ticket) }
	if !slices.IsSortedFunc(im.Records, byTicket) {
		slices.SortFunc(im.Records, byTicket)
	}
	im.Records = slices.CompactFunc(im.Records, func(a, b batch.Record) bool { return a.Ticket == b.Ticket })
	if n := len(im.Records); n > 0 && im.Records[n-1].Ticket > im.ackedTop {
		k, _ := slices.BinarySearchFunc(im.Records, im.ackedTop+1, func(r batch.Record, t uint64) int { return cmp.Compare(r.Ticket, t) })
		im.Holes = im.Records[n-1].Ticket - im.ackedTop - uint64(n-k)
	}
	im.countRecords()
	im.finishBig()
	im.DamagedBefore = im.damagedMark - min(im.damagedMark, im.Damaged+im.Undefined)
	left := im.Holes
	for _, n := range []uint64{im.Damaged, im.HeapOnly} {
		left -= min(left, n)
	}
	im.Settled = min(im.Settled, left)
	left -= im.Settled
	// Each call that had not returned accounts for one hole, and the file has room for maxRecords
	// such calls. If there are more holes, a ticket is damaged.
	if im.Evicted = min(im.Evicted, left); im.anyHoles {
		im.Evicted = min(left, im.maxRecords)
	} else {
		im.Unreturned = min(left-im.Evicted, im.maxRecords)
	}
}

// countRecords sets the numbers of oversize records and of records of undefined streams.
func (im *Image) countRecords() {
	im.Oversize, im.Undefined = 0, 0
	for i := range im.Records {
		r := &im.Records[i]
		if len(r.Data)+layout.SlotBytes > im.slab {
			im.Oversize++
		}
		if !im.Defined(r.Stream) {
			im.Undefined++
		}
	}
}

// word returns the value v as the version of the file encodes it.
func (im *Image) word(v uint64) uint64 {
	if im.sealed {
		return SealWord(v)
	}
	return v
}

// read returns the value of a state word. If the word is damaged or the value is above limit, it
// increments DamagedState and returns false.
func (im *Image) read(word, limit uint64) (v uint64, ok bool) {
	v, ok = word, true
	if im.sealed {
		v, ok = openWord(word)
	}
	if ok = ok && v <= limit; !ok {
		im.DamagedState++
		return 0, false
	}
	return v, true
}

// maxBig returns the maximum number of pending records larger than a slab.
func (im *Image) maxBig() uint64 { return im.oversize/uint64(im.slab-layout.SlotBytes) + 1 }

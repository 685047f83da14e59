package slab

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// An Image is what a crash-safe file holds.
type Image struct {
	UUID        [16]byte
	BootID      [16]byte
	Created     int64 // Unix nanoseconds
	PID         uint32
	ContentType string
	Schema      uint32
	Acked       uint64 // records up to this ticket were settled and are left out
	Streams     map[uint32][]byte
	// Records are those that were accepted and not settled, by rising ticket.
	// Their Data belongs to the image. (UUID, Ticket) names a record for good.
	Records []batch.Record
	// Oversize is how many of Records are larger than a slab.
	Oversize uint64

	// Holes is how many tickets between Acked and the last record have no record.
	// Of them Evicted were evicted by DropOldest, HeapOnly were larger than a slab
	// and only in the memory of the process, Damaged were in slabs that fail their
	// checksum, and Unreturned are the rest: their calls had not returned.
	Holes, Evicted, HeapOnly, Damaged, Unreturned uint64
	// DamagedSlabs is how many slabs fail their checksum. Their records are left
	// out.
	DamagedSlabs int
	// MovedToHeap: the mapping faulted while the process lived; what it accepted
	// after that was only in its memory.
	MovedToHeap bool

	buried map[uint64]bool // evicted oversize records
}

// CrashRecovery counts what a Writer found in the files of dead processes: the
// fields are sums of those of [Image].
type CrashRecovery struct {
	Files        uint64
	Records      uint64 // to be delivered, Oversize included
	Oversize     uint64
	Evicted      uint64
	HeapOnly     uint64
	Unreturned   uint64
	Damaged      uint64 // counted as recovered, and as dropped{corrupt}
	DamagedFiles uint64 // renamed aside
}

func (r *CrashRecovery) add(im *Image) {
	r.Files++
	r.Records += uint64(len(im.Records))
	r.Oversize += im.Oversize
	r.Evicted += im.Evicted
	r.HeapOnly += im.HeapOnly
	r.Unreturned += im.Unreturned
	r.Damaged += im.Damaged
}

// ErrDamaged is wrapped by the error for a crash-safe file that cannot be read.
var ErrDamaged = errors.New("slab: damaged crash-safe file")

// errNewer: the file is sound as far as one can tell, and not for this version.
var errNewer = errors.New("slab: a later version has written this crash-safe file")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// ReadImage reads the crash-safe file at path and the file of oversize records
// beside it. It takes no lock: the file of a living process changes under it,
// and what it returns then is a moment of that.
func ReadImage(path string) (*Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("slab: cannot read crash-safe file: %w", err)
	}
	defer f.Close()
	return readImage(f, path)
}

func readImage(f *os.File, path string) (*Image, error) {
	data, err := readBounded(f)
	if err != nil {
		return nil, fmt.Errorf("slab: cannot read crash-safe file %s: %w", path, err)
	}
	im, err := parseImage(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if data, err := readBig(path); err == nil {
		im.parseBig(data)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("slab: cannot read oversize records: %w", err)
	}
	im.finish()
	return im, nil
}

func readBig(path string) ([]byte, error) {
	f, err := os.Open(path + bigSuffix)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f)
}

func readBounded(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxCrashBytes {
		return nil, damaged("%d bytes are more than such a file can have", st.Size())
	}
	data := make([]byte, st.Size())
	n, err := io.ReadFull(io.NewSectionReader(f, 0, st.Size()), data)
	if err == io.ErrUnexpectedEOF || err == io.EOF { // it shrank
		err = nil
	}
	return data[:n], err
}

// parseImage reads the identity, the dictionary and every slab. It trusts nothing
// but the checksum of the identity: each slot must fit where the one before ended,
// and its ticket must be plausible for this use of the slab.
func parseImage(data []byte) (*Image, error) {
	if len(data) < crashHeadsOff {
		return nil, damaged("it has %d bytes, too few for its header", len(data))
	}
	le := binary.LittleEndian
	if string(data[:8]) != crashMagic {
		return nil, damaged("it does not begin with %q", crashMagic)
	}
	if v := le.Uint32(data[8:]); v > crashVersion {
		return nil, fmt.Errorf("%w: it has version %d, this program reads %d", errNewer, v, crashVersion)
	} else if v != crashVersion {
		return nil, damaged("version %d, this program reads %d", v, crashVersion)
	}
	if crc32.Checksum(data[16:crashPage], castagnoli) != le.Uint32(data[12:]) {
		return nil, damaged("the checksum of the header is wrong")
	}
	im := &Image{
		Created: int64(le.Uint64(data[48:])), PID: le.Uint32(data[56:]), Schema: le.Uint32(data[68:]),
		Streams: map[uint32][]byte{},
	}
	copy(im.UUID[:], data[16:])
	copy(im.BootID[:], data[32:])
	slabBytes, count := int(le.Uint32(data[60:])), int(le.Uint32(data[64:]))
	im.ContentType = string(data[73 : 73+int(data[72])])
	if slabBytes < MinSlabBytes || slabBytes > MaxSlabBytes || slabBytes%batch.SlotBytes != 0 ||
		count < 2 || count > MaxSlabCount || crashSize(slabBytes, count) > maxCrashBytes {
		return nil, damaged("%d slabs of %d bytes are impossible", count, slabBytes)
	}
	if want := crashSize(slabBytes, count); int64(len(data)) < want {
		return nil, damaged("it has %d bytes, its slabs need %d", len(data), want)
	}
	im.Acked = le.Uint64(data[crashPage:])
	im.HeapOnly = le.Uint64(data[crashPage+64:])
	im.MovedToHeap = le.Uint64(data[crashPage+72:]) != 0
	im.Evicted = le.Uint64(data[crashPage+192:])
	im.Evicted -= min(im.Evicted, le.Uint64(data[crashPage+200:]))
	im.parseDict(data[crashDictOff:crashDictOff+crashDictLen], le.Uint64(data[crashPage+128:]))
	base := crashHeadsOff + roundUp(64*count, crashPage)
	// In the order of their tickets, so that nearly nothing is left to sort.
	order := make([]int, count)
	for i := range order {
		order[i] = i
	}
	first := func(i int) uint64 { return le.Uint64(data[crashHeadsOff+64*i:]) }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(first(a), first(b)) })
	for k, i := range order {
		if n := len(im.Records); k > 0 && n > 0 && n+n/k > cap(im.Records) { // as many in each slab as so far
			im.Records = slices.Grow(im.Records, min(n/k*(count-k+1), len(data)/batch.SlotBytes)+1)
		}
		head := data[crashHeadsOff+64*i:]
		im.parseSlab(data[base+i*slabBytes:base+(i+1)*slabBytes], head)
	}
	return im, nil
}

func (im *Image) parseDict(d []byte, n uint64) {
	d = d[:min(n, uint64(len(d)))]
	for len(d) >= 8 {
		id, size := binary.LittleEndian.Uint32(d), binary.LittleEndian.Uint32(d[4:])
		if uint64(size) > uint64(len(d)-8) {
			return
		}
		im.Streams[id] = d[8 : 8+size]
		d = d[8+size:]
	}
}

// parseSlab takes the records of one slab: slots from the back while their
// tickets rise from first on, and those of an older generation in [from, to). A
// slab that was sealed and fails its checksum is left out, whatever it says.
func (im *Image) parseSlab(mem, head []byte) {
	le := binary.LittleEndian
	first, old, sum, last := le.Uint64(head), le.Uint64(head[8:]), le.Uint64(head[16:]), le.Uint64(head[24:])
	n := len(mem) / batch.SlotBytes
	if sum != 0 && !sound(mem, first, last, sum) {
		if last > im.Acked {
			im.DamagedSlabs++
			im.Damaged += min(sum>>32, last-im.Acked, uint64(n))
		}
		return
	}
	if first != ^uint64(0) && first != 0 {
		im.parseSlots(mem, 0, n, first)
	}
	if from, to := int(old>>32), int(uint32(old)); from < to && to <= n {
		im.parseSlots(mem, from, to, 1)
	}
}

// sound reports whether a sealed slab is as its checksum says.
func sound(mem []byte, first, last, sum uint64) bool {
	n := sum >> 32
	if n == 0 || n > uint64(len(mem)/batch.SlotBytes) {
		return false
	}
	slots := mem[len(mem)-int(n)*batch.SlotBytes:]
	end := uint64(binary.LittleEndian.Uint32(slots[16:])) + uint64(binary.LittleEndian.Uint32(slots[20:]))
	if end > uint64(len(mem)-len(slots)) {
		return false
	}
	return slabSum(first, last, mem[:end], slots) == uint32(sum)
}

func (im *Image) parseSlots(mem []byte, from, to int, first uint64) {
	le := binary.LittleEndian
	prev, end := first-1, -1
	if from == 0 {
		end = 0
	}
	for k := from; k < to; k++ {
		at := len(mem) - (k+1)*batch.SlotBytes
		if at < 0 {
			return
		}
		s := mem[at : at+batch.SlotBytes]
		ticket := le.Uint64(s)
		off, size := uint64(le.Uint32(s[16:])), uint64(le.Uint32(s[20:]))
		if ticket <= prev || end >= 0 && off != uint64(end) || off+size > uint64(at) {
			return
		}
		prev, end = ticket, int(off+size)
		if ticket <= im.Acked {
			continue
		}
		im.Records = append(im.Records, batch.Record{
			Data: mem[off : off+size : off+size], Ticket: ticket,
			Meta: slotMeta(s),
		})
	}
}

func slotMeta(s []byte) batch.Meta {
	le := binary.LittleEndian
	slot := batch.Slot{Time: int64(le.Uint64(s[8:])), Stream: le.Uint32(s[24:]), Level: int8(s[28])}
	return slot.Meta()
}

// parseBig takes the oversize records, up to the first frame that is torn.
func (im *Image) parseBig(d []byte) {
	le := binary.LittleEndian
	for len(d) >= bigHeadLen {
		size := uint64(le.Uint32(d[4:]))
		if size > uint64(len(d)-bigHeadLen) || crc32.Checksum(d[4:bigHeadLen+size], castagnoli) != le.Uint32(d) {
			return
		}
		slot := batch.Slot{Time: int64(le.Uint64(d[16:])), Stream: le.Uint32(d[24:]), Level: int8(d[28])}
		switch t := le.Uint64(d[8:]); {
		case t <= im.Acked:
		case d[29]&flagEvicted != 0:
			if im.buried == nil {
				im.buried = map[uint64]bool{}
			}
			im.buried[t] = true
		default:
			im.Oversize++
			im.Records = append(im.Records, batch.Record{
				Data: d[bigHeadLen : bigHeadLen+size : bigHeadLen+size], Ticket: t, Meta: slot.Meta(),
			})
		}
		d = d[bigHeadLen+size:]
	}
}

// finish puts the records in order, leaves out evicted ones, and tells the holes
// apart.
func (im *Image) finish() {
	if len(im.buried) > 0 {
		n := len(im.Records)
		im.Records = slices.DeleteFunc(im.Records, func(r batch.Record) bool { return im.buried[r.Ticket] })
		im.Oversize -= min(im.Oversize, uint64(n-len(im.Records)))
	}
	byTicket := func(a, b batch.Record) int { return cmp.Compare(a.Ticket, b.Ticket) }
	if !slices.IsSortedFunc(im.Records, byTicket) {
		slices.SortFunc(im.Records, byTicket)
	}
	im.Records = slices.CompactFunc(im.Records, func(a, b batch.Record) bool { return a.Ticket == b.Ticket })
	if n := len(im.Records); n > 0 {
		im.Holes = im.Records[n-1].Ticket - im.Acked - uint64(n)
	}
	left := im.Holes
	for _, n := range []uint64{im.Damaged, im.HeapOnly} {
		left -= min(left, n)
	}
	im.Evicted = min(im.Evicted, left)
	im.Unreturned = left - im.Evicted
}

package slab

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
)

// An Image is what a crash-safe file holds, read after its process has died.
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
	// Their Data belongs to the image.
	Records []batch.Record
	// Holes is how many tickets between the first and the last record have no
	// record: calls that never returned, or records settled out of order.
	Holes uint64
}

// ErrDamaged is wrapped by the error for a crash-safe file that cannot be read.
var ErrDamaged = errors.New("slab: damaged crash-safe file")

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
	if big, err := os.Open(path + bigSuffix); err == nil {
		defer big.Close()
		if data, err := readBounded(big); err == nil {
			im.parseBig(data)
		}
	}
	im.finish()
	return im, nil
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
	n, err := io.ReadFull(f, data)
	if err == io.ErrUnexpectedEOF { // it shrank
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
	if v := le.Uint32(data[8:]); v != crashVersion {
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
	im.parseDict(data[crashDictOff:crashDictOff+crashDictLen], le.Uint64(data[crashPage+128:]))
	base := crashHeadsOff + roundUp(64*count, crashPage)
	// In the order of their tickets, so that nearly nothing is left to sort.
	order := make([]int, count)
	for i := range order {
		order[i] = i
	}
	first := func(i int) uint64 { return le.Uint64(data[crashHeadsOff+64*i:]) }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(first(a), first(b)) })
	for _, i := range order {
		head := data[crashHeadsOff+64*i:]
		im.parseSlab(data[base+i*slabBytes:base+(i+1)*slabBytes], le.Uint64(head), le.Uint64(head[8:]))
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
// tickets rise from first on, and those of an older generation in [from, to).
func (im *Image) parseSlab(mem []byte, first, old uint64) {
	n := len(mem) / batch.SlotBytes
	if first != ^uint64(0) && first != 0 {
		im.parseSlots(mem, 0, n, first)
	}
	if from, to := int(old>>32), int(uint32(old)); from < to && to <= n {
		im.parseSlots(mem, from, to, 1)
	}
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
		if t := le.Uint64(d[8:]); t > im.Acked {
			im.Records = append(im.Records, batch.Record{
				Data: d[bigHeadLen : bigHeadLen+size : bigHeadLen+size], Ticket: t, Meta: slot.Meta(),
			})
		}
		d = d[bigHeadLen+size:]
	}
}

// finish puts the records in order and counts the holes.
func (im *Image) finish() {
	byTicket := func(a, b batch.Record) int { return cmp.Compare(a.Ticket, b.Ticket) }
	if !slices.IsSortedFunc(im.Records, byTicket) {
		slices.SortFunc(im.Records, byTicket)
	}
	im.Records = slices.CompactFunc(im.Records, func(a, b batch.Record) bool { return a.Ticket == b.Ticket })
	if n := len(im.Records); n > 0 {
		im.Holes = im.Records[n-1].Ticket - im.Records[0].Ticket + 1 - uint64(n)
	}
}

// An orphan is the file of a dead process, locked by this one.
type orphan struct {
	*Image
	path    string
	f       *os.File
	next    int               // records from here on are not offered yet
	streams map[uint32]uint32 // its stream numbers in this process
}

// adopt locks and reads the files of dead processes in the directory. Files of
// living ones are left alone; damaged ones are renamed aside and reported. Nothing
// here keeps the Writer from starting.
func (w *Writer) adopt(dict batch.Dictionary) {
	dir := w.o.Crash.Dir
	removeUnborn(dir)
	names, _ := filepath.Glob(filepath.Join(globEscape(dir), "*"+crashSuffix))
	slices.Sort(names) // names begin with the time of creation
	for _, path := range names {
		if w.crash != nil && path == w.crash.path {
			continue
		}
		o, err := openOrphan(path)
		if errors.Is(err, errInUse) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = o.usable(w.o.Codec)
		}
		if err != nil {
			w.setAside(o, path, err)
			continue
		}
		o.streams = map[uint32]uint32{}
		for id, def := range o.Streams {
			if dict != nil {
				o.streams[id] = dict.Stream(def)
			}
		}
		w.recovery = append(w.recovery, o)
		w.recLeft += len(o.Records)
		w.acc.Recovered += uint64(len(o.Records))
	}
	if w.recLeft > 0 {
		w.events.Post(batch.Event{Output: w.o.Name, Op: "recovered-from-disk", Count: uint64(w.recLeft)})
	}
}

// removeUnborn removes files whose process died while it made them: they hold no
// record yet.
func removeUnborn(dir string) {
	names, _ := filepath.Glob(filepath.Join(globEscape(dir), "*"+crashSuffix+newSuffix))
	for _, path := range names {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		// A minute, because a living process may be about to take the lock.
		if st, err := f.Stat(); err == nil && time.Since(st.ModTime()) > time.Minute && lockFile(f) == nil {
			os.Remove(path)
		}
		f.Close()
	}
}

// globEscape keeps special characters of a directory's name from being patterns.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// setAside renames a damaged file, so that it is looked at once and by a person.
// A sound file of another content type stays where it is.
func (w *Writer) setAside(o *orphan, path string, err error) {
	if errors.Is(err, ErrDamaged) {
		if rerr := os.Rename(path, path+badSuffix); rerr == nil {
			err = fmt.Errorf("%w; renamed to %s", err, path+badSuffix)
			_ = os.Rename(path+bigSuffix, path+badSuffix+bigSuffix)
		}
	}
	if o != nil && o.f != nil {
		o.f.Close()
	}
	w.events.Post(batch.Event{Output: w.o.Name, Op: "recover", Err: err})
}

var errInUse = errors.New("in use by a living process")

func openOrphan(path string) (*orphan, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	o := &orphan{path: path, f: f}
	if err := lockFile(f); err != nil {
		f.Close()
		if locked(err) {
			return nil, errInUse
		}
		return nil, err
	}
	// The process that had it may have removed it just before we got the lock.
	st, err1 := f.Stat()
	now, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(st, now) {
		f.Close()
		return nil, os.ErrNotExist
	}
	im, err := readImage(f, path)
	if err != nil {
		return o, err
	}
	o.Image = im
	return o, nil
}

// usable reports whether records of this content type can be delivered as they
// are.
func (o *orphan) usable(c batch.Codec) error {
	own := ""
	if c != nil {
		own = c.ContentType()
	}
	if len(o.Records) > 0 && o.ContentType != own {
		return fmt.Errorf("slab: %s holds %d records of type %q, this output takes %q: left where it is",
			o.path, len(o.Records), o.ContentType, own)
	}
	return nil
}

// persist notes in the file how far its records are settled.
func (o *orphan) persist() {
	if o.next == 0 {
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], o.Records[o.next-1].Ticket)
	_, _ = o.f.WriteAt(b[:], crashPage) // if it fails they are delivered twice, never lost
}

// nextRecovered makes the next records of a dead process the batch. It reports
// false when a file is finished: delivered first, then progress persisted, then
// unlinked.
func (w *Writer) nextRecovered() bool {
	d, o := &w.d, w.recovery[0]
	o.persist()
	if o.next == len(o.Records) {
		os.Remove(o.path + bigSuffix)
		os.Remove(o.path)
		o.f.Close()
		w.recovery = w.recovery[1:]
		return false
	}
	var b batch.Builder
	limit := w.slabBytes
	if w.limits.Bytes > 0 {
		limit = min(limit, w.limits.Bytes)
	}
	for _, r := range o.Records[o.next:] {
		if b.Len() > 0 && (b.Bytes()+len(r.Data) > limit || w.limits.Records > 0 && b.Len() == w.limits.Records) {
			break
		}
		if id, ok := o.streams[r.Stream]; ok {
			r.Stream = id
		}
		b.Append(r.Data, r.Ticket, r.Meta)
	}
	o.next += b.Len()
	d.all.Reset()
	for _, r := range b.Batch(nil).Runs {
		d.all.Add(r)
	}
	d.rest = &d.all
	w.mu.Lock()
	w.recovering = true
	w.inflight = d.all.Len()
	w.inflightTime = d.all.Runs[0].Slot(0).Time
	w.recLeft -= w.inflight
	w.mu.Unlock()
	return true
}

var _ = [1]struct{}{}[unsafe.Sizeof(batch.Slot{})-batch.SlotBytes]

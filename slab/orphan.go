package slab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/mapped"
)

// An orphan is the file of a dead process, locked by this one.
type orphan struct {
	*Image  // nil until its turn comes: one is in memory at a time
	path    string
	f       *os.File
	n       int               // records that were not settled when it was found
	next    int               // records from here on are not offered yet
	codec   batch.Codec       // of its records
	streams map[uint32]uint32 // its stream numbers in this process
	dict    batch.Dictionary  // gives them out; nil: they stay as they are
	heldBy  heldBy            // to be asked which records are on the disk of the borrower; nil: it was, or there is none

	elsewhere []batch.Tickets // of records that the borrower has, in order
	leftOut   uint64          // records that are left out because of that

	lost   uint64 // records of streams that are not defined, left out
	marked bool   // the file says that it is damaged
}

// adopt locks the files of dead processes in the directory and counts what is in
// them. Files of living ones are left alone; damaged ones are renamed aside and
// reported. Nothing here keeps the Writer from starting.
func (w *Writer) adopt() {
	dir := w.o.Crash.Dir
	mapped.RemoveUnborn(dir, crashSuffix+newSuffix)
	names := mapped.Files(dir, crashSuffix) // names begin with the time of creation
	if w.crash != nil {
		names = slices.DeleteFunc(names, func(p string) bool { return p == w.crash.path })
	}
	var found []*orphan
	dict := w.wants.Dictionary
	busy := w.claim(names, dict, &found)
	if len(busy) > 0 { // perhaps somebody just looked whether they are in use
		time.Sleep(lookTime)
		w.claim(busy, dict, &found)
		slices.SortFunc(found, func(a, b *orphan) int { return strings.Compare(a.path, b.path) })
	}
	for _, o := range found {
		if points {
			point(ptAdopt)
		}
		w.countOrphan(o)
		if len(w.dead.files) > 0 {
			o.Image = nil
		}
		w.dead.files = append(w.dead.files, o)
	}
	if w.dead.left > 0 {
		w.events.Post(batch.Event{Output: w.o.Name, Op: "recovered-from-disk", Count: uint64(w.dead.left)})
	}
}

// lookTime is how long somebody who asks whether a file is in use holds its lock
// at most.
const lookTime = 2 * time.Millisecond

// claim opens and locks the files and returns those that are in use.
func (w *Writer) claim(paths []string, dict batch.Dictionary, found *[]*orphan) (busy []string) {
	for _, path := range paths {
		o, err := openOrphan(path, dict, w.to.Held)
		if errors.Is(err, ErrInUse) {
			busy = append(busy, path)
			continue
		}
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = o.usable(&w.o, w.form)
		}
		if err != nil {
			w.setAside(o, path, err)
			continue
		}
		*found = append(*found, o)
	}
	return busy
}

// countOrphan enters into the account what is in a file.
func (w *Writer) countOrphan(o *orphan) {
	o.n = len(o.Records)
	w.dead.left += o.n
	w.dead.stats.add(o.Image)
	w.dead.stats.Undefined += o.lost
	w.dead.stats.Held += o.leftOut
	w.acc.Recovered += uint64(o.n) + o.Damaged + o.lost
	w.acc.Dropped[batch.Corrupt] += o.Damaged + o.lost
	report := func(n uint64, format string, args ...any) {
		w.events.Post(batch.Event{Output: w.o.Name, Op: "recover", Count: n, Err: fmt.Errorf("slab: %s: "+format, append([]any{o.path}, args...)...)})
	}
	if o.isDamaged() {
		w.dead.stats.DamagedFiles++
	}
	switch {
	case o.lacksRecords():
		report(o.Damaged+o.lost, "it is damaged, %s: left out; the file will be renamed to %s", o.Damage(), badSuffix)
	case o.isDamaged():
		report(0, "it is damaged, %s: records may arrive twice, and counts may be missing; the file will be renamed to %s", o.Damage(), badSuffix)
	}
	if o.OtherBoot && o.n > 0 {
		report(0, "it is from before this machine was started: what had not reached the disk by then is missing")
	}
	if o.HeapOnly > 0 {
		report(o.HeapOnly, "%d records larger than a slab were only in the memory of the process, and are lost", o.HeapOnly)
	}
	if o.MovedToHeap {
		report(0, "the file was damaged while its process lived; what that accepted later was only in its memory, and what it had not delivered is lost")
	}
}

// setAside renames a damaged file, so that it is looked at once and by a person.
// A sound file that is not for this output stays where it is.
func (w *Writer) setAside(o *orphan, path string, err error) {
	if errors.Is(err, ErrDamaged) {
		w.mu.Lock()
		w.dead.stats.DamagedFiles++
		w.mu.Unlock()
		if rerr := renameAside(path); rerr == nil {
			err = fmt.Errorf("%w; renamed to %s", err, path+badSuffix)
		}
	}
	if o != nil && o.f != nil {
		o.f.Close()
	}
	w.events.Post(batch.Event{Output: w.o.Name, Op: "recover", Err: err})
}

func renameAside(path string) error {
	// What belongs to it first: a kill on the way leaves a file that is renamed later.
	for _, suffix := range []string{bigSuffix, streamSuffix} {
		_ = os.Rename(path+suffix, path+badSuffix+suffix)
	}
	return os.Rename(path, path+badSuffix)
}

// ErrInUse is wrapped by the error for a crash-safe file whose process lives.
var ErrInUse = mapped.ErrInUse

func openOrphan(path string, dict batch.Dictionary, held heldBy) (*orphan, error) {
	o, err := lockOrphan(path)
	if err != nil {
		return nil, err
	}
	o.dict, o.heldBy = dict, held
	return o, o.load()
}

// lockOrphan opens and locks a file.
func lockOrphan(path string) (*orphan, error) {
	f, err := mapped.Adopt(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, os.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("slab: %w", err)
	}
	return &orphan{path: path, f: f}, nil
}

// load reads the file.
func (o *orphan) load() (err error) {
	o.Image, err = readImage(o.f, o.path)
	o.lost = 0
	if err == nil {
		o.leaveOut()
	}
	if err == nil && o.dict != nil && o.Undefined > 0 { // they must not pass for others
		o.lost = o.Undefined
		o.Records = slices.DeleteFunc(o.Records, func(r batch.Record) bool { return !o.Defined(r.Stream) })
	}
	return err
}

// isDamaged reports whether the file is kept in the end.
func (o *orphan) isDamaged() bool { return o.lacksRecords() || o.DamagedState > 0 }

// lacksRecords reports whether records are lost, now or in an earlier recovery.
func (o *orphan) lacksRecords() bool {
	return o.DamagedSlabs > 0 || o.Damaged+o.lost+o.mark > 0
}

// markDamaged notes in the file that it is damaged, before progress is: an interrupted
// recovery must not make it look sound.
func (o *orphan) markDamaged() error {
	if o.marked || !o.lacksRecords() {
		return nil
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], o.word(max(1, o.mark, o.DamagedBefore+o.Damaged+o.lost)))
	_, err := o.f.WriteAt(b[:], int64(crashPage+stateDamaged))
	o.marked = err == nil
	return err
}

// usable finds the codec of the records, or says why they cannot be delivered as
// they are.
func (o *orphan) usable(opt *Options, form form) error {
	own, schema := form.contentType, form.schema
	if o.codec = opt.Codec; len(o.Records) == 0 || o.ContentType == own && o.Schema <= schema {
		return nil
	}
	if opt.Crash.Codec != nil {
		var c batch.Codec
		ok := false
		if err := contain.Call(func() { c, ok = opt.Crash.Codec(o.ContentType, o.Schema) }); err != nil {
			return fmt.Errorf("slab: Crash.Codec, asked about %s, which is left where it is: %w", o.path, err)
		}
		if o.codec = c; ok {
			return nil
		}
	}
	if o.ContentType == own {
		return fmt.Errorf("slab: %s holds %d records of version %d of type %q, this output knows up to %d: left where it is",
			o.path, len(o.Records), o.Schema, own, schema)
	}
	return fmt.Errorf("slab: %s holds %d records of type %q, this output takes %q: left where it is",
		o.path, len(o.Records), o.ContentType, own)
}

// A form is what a file says about its records.
type form struct {
	contentType string
	schema      uint32
}

// formOf returns the form of the records of a codec.
func formOf(c batch.Codec) (f form, err error) {
	if c == nil {
		return f, nil
	}
	err = contain.Call(func() {
		f.contentType = c.ContentType()
		if v, ok := c.(batch.Versioned); ok {
			f.schema = v.SchemaVersion()
		}
	})
	if err != nil {
		err = fmt.Errorf("slab: Options.Codec does not say what it is: %w", err)
	}
	return f, err
}

// translate finds out which numbers the streams of the file have here. Records of a
// stream for which the dictionary does not return are left out, as if it were not
// defined; translate returns how many that are.
func (o *orphan) translate() (lost int, err error) {
	o.streams = map[uint32]uint32{}
	if o.dict == nil {
		return 0, nil
	}
	bad := map[uint32]bool{}
	for id, def := range o.Streams {
		if e := contain.Call(func() { o.streams[id] = o.dict.Stream(def) }); e != nil {
			bad[id], err = true, fmt.Errorf("slab: Stream of the dictionary, for records in %s: %w", o.path, e)
		}
	}
	n := len(o.Records)
	o.Records = slices.DeleteFunc(o.Records, func(r batch.Record) bool { return bad[r.Stream] })
	lost = n - len(o.Records)
	o.lost += uint64(lost)
	return lost, err
}

// translateNext is translate for the file whose turn it is.
func (w *Writer) translateNext() {
	o := w.dead.files[0]
	whole := !o.isDamaged()
	n, err := o.translate()
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.unlock()
	w.dead.left -= n
	w.countDropLocked(batch.Corrupt, n)
	w.dead.stats.Records -= uint64(n)
	w.dead.stats.Undefined += uint64(n)
	if whole && n > 0 {
		w.dead.stats.DamagedFiles++
	}
	w.events.Post(batch.Event{Output: w.o.Name, Op: "recover", Count: uint64(n), Err: err})
}

// take makes b of the next records, up to the limits: at least one, if one is left.
// The copy belongs to c, and is overwritten by the next.
func (o *orphan) take(c *batchCopy, l batch.Limits) *batch.Batch {
	c.data, c.slots = c.data[:0], c.slots[:0]
	for _, r := range o.Records[o.next:] {
		if n := len(c.slots); n > 0 && (len(c.data)+len(r.Data) > l.Bytes || l.Records > 0 && n == l.Records) {
			break
		}
		if id, ok := o.streams[r.Stream]; ok {
			r.Stream = id
		}
		c.slots = append(c.slots, batch.Slot{
			Ticket: r.Ticket, Time: r.Time, Off: uint32(len(c.data)), Len: uint32(len(r.Data)),
			Stream: r.Stream, Level: clampLevel(r.Level),
		})
		c.data = append(c.data, r.Data...)
	}
	o.next += len(c.slots)
	c.batch.Reset()
	c.batch.Codec, c.batch.Origin = o.codec, o.UUID
	c.batch.Add(batch.NewRun(c.data, c.slots))
	return &c.batch
}

// persist notes in the file that its records up to a ticket are settled.
func (o *orphan) persist(ticket uint64) {
	if ticket <= o.Acked {
		return
	}
	if points {
		point(ptPersist)
	}
	if o.markDamaged() != nil || o.noteUnnamed(ticket) != nil {
		return // they are delivered twice rather than the damage be forgotten, or taken for more
	}
	var b [16]byte // acked and, after it, ackedToo
	binary.LittleEndian.PutUint64(b[:], ticket)
	copy(b[8:], b[:8])
	if _, err := o.f.WriteAt(b[:], int64(crashPage+stateAcked)); err == nil { // else they are delivered twice, never lost
		o.Acked = ticket
	}
	if points {
		point(ptPersisted)
	}
}

// noteUnnamed notes in the file how many of the frames that the state does not name are
// of records above a ticket. That comes before the progress, so that a kill between the
// two makes no record look lost. Those that are lost have been counted by markDamaged.
func (o *orphan) noteUnnamed(ticket uint64) error {
	left := slices.DeleteFunc(slices.Clone(o.unnamed), func(t uint64) bool { return t <= ticket })
	if len(left) == len(o.unnamed) {
		return nil
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], o.word(uint64(len(left))))
	_, err := o.f.WriteAt(b[:], int64(crashPage+stateBigMore))
	if err == nil {
		o.unnamed = left
	}
	return err
}

// offered returns the last ticket that was handed out.
func (o *orphan) offered() uint64 {
	if o.next == 0 {
		return 0
	}
	return o.Records[o.next-1].Ticket
}

// finish ends a file of which everything is settled.
func (o *orphan) finish() {
	if o.isDamaged() {
		_ = renameAside(o.path)
	} else {
		removeCrash(o.path)
	}
	o.f.Close()
}

// nextRecovered makes the next records of a dead process the batch. It reports
// false when a file is finished: delivered first, then progress persisted, then
// unlinked.
func (w *Writer) nextRecovered() bool {
	d, o := &w.d, w.dead.files[0]
	if o.Image == nil && !w.loadOrphan(o) {
		return false
	}
	if o.streams == nil {
		w.translateNext()
	}
	o.persist(o.offered())
	if o.next == len(o.Records) {
		o.finish()
		w.dead.files[0] = nil
		w.dead.files = w.dead.files[1:]
		d.all.Codec, d.all.Origin = w.o.Codec, w.id
		return false
	}
	if points {
		point(ptRecover)
	}
	l := w.wants.Limits
	if l.Bytes <= 0 || l.Bytes > w.slabBytes {
		l.Bytes = w.slabBytes
	}
	b := o.take(&d.copied, l)
	d.all.Reset()
	d.all.Codec, d.all.Origin = o.codec, o.UUID
	d.all.Add(b.Runs[0])
	d.now = &d.all
	w.mu.Lock()
	w.dead.sending = true
	w.inflight = d.all.Len()
	w.gauge.inflightTime, w.gauge.seen = d.all.Runs[0].Slot(0).Time, time.Since(w.born)
	w.dead.left -= w.inflight
	w.mu.Unlock()
	return true
}

// loadOrphan reads a file again, whose turn has come. What is no longer there
// counts as corrupt.
func (w *Writer) loadOrphan(o *orphan) bool {
	err := o.load()
	now := 0
	if err == nil {
		now = len(o.Records)
	}
	w.mu.Lock()
	w.dead.left += now - o.n
	if now >= o.n {
		w.acc.Recovered += uint64(now - o.n)
	} else {
		w.countDropLocked(batch.Corrupt, o.n-now)
	}
	w.mu.Unlock()
	o.n = now
	if err != nil {
		w.dead.files = w.dead.files[1:]
		w.setAside(o, o.path, err)
	}
	return err == nil
}

var _ = [1]struct{}{}[unsafe.Sizeof(batch.Slot{})-batch.SlotBytes]

package crashfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/mapped"
)

// An Orphan is the crash-safe file of a dead process, opened and locked by this process.
type Orphan struct {
	*Image  // nil until Load is called: only one image is in memory at a time
	Path    string
	Codec   batch.Codec // codec of its records
	Lost    uint64      // number of records omitted because their streams are undefined
	LeftOut uint64      // number of records omitted because the consumer has them on disk
	// StreamErr is the error of Translate when the file was found.
	StreamErr error

	f       *os.File
	next    int               // index of the next record to return
	streams map[uint32]uint32 // maps the stream numbers of the file to the stream numbers of this process
	dict    batch.Dictionary  // assigns the stream numbers of this process; nil: numbers are unchanged
	heldBy  HeldBy            // returns the records that the consumer has on disk; nil after it was called

	held   []layout.Tickets // ranges of records that the consumer has on disk, in ascending order
	marked bool             // the file is marked as damaged
}

// SetAside renames a damaged file and its companion files.
func SetAside(path string) error {
	// The companion files are renamed first. After a kill between the renames, the next recovery
	// finds the main file and renames it.
	for _, suffix := range []string{BigSuffix, StreamSuffix} {
		_ = os.Rename(path+suffix, path+BadSuffix+suffix)
	}
	return os.Rename(path, path+BadSuffix)
}

// A Copy is a batch copied out of a file. Each call of [Orphan.Take] with the same Copy reuses its
// memory.
type Copy struct {
	Data  []byte
	Slots []layout.Slot
	Batch batch.Batch
}

// Open locks and reads a file. If it returns both an Orphan and an error, the caller closes the
// Orphan.
func Open(path string, dict batch.Dictionary, held HeldBy) (*Orphan, error) {
	o, err := lock(path)
	if err != nil {
		return nil, err
	}
	o.dict, o.heldBy = dict, held
	return o, o.Load()
}

// lock opens the file at path and locks it. The error wraps ErrInUse if another process uses the
// file.
func lock(path string) (*Orphan, error) {
	f, err := mapped.Adopt(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, os.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("slab: %w", err)
	}
	return &Orphan{Path: path, f: f}, nil
}

// Load reads the file into memory and sets Image. It also removes the records that are not
// delivered: records of undefined streams, and records that the consumer has on disk.
func (o *Orphan) Load() (err error) {
	o.Image, err = readImage(o.f, o.Path)
	o.Lost = 0
	if err == nil {
		o.omitHeld()
	}
	if err == nil && o.dict != nil && o.Undefined > 0 { // records of undefined streams would otherwise be delivered as records of other streams
		o.Lost = o.Undefined
		o.Records = slices.DeleteFunc(o.Records, func(r batch.Record) bool { return !o.Defined(r.Stream) })
	}
	return err
}

// IsDamaged reports whether the file is damaged and therefore kept after recovery.
func (o *Orphan) IsDamaged() bool { return o.LacksRecords() || o.DamagedState > 0 }

// LacksRecords reports whether records were lost, in this recovery or an earlier one.
func (o *Orphan) LacksRecords() bool {
	return o.DamagedSlabs > 0 || o.Damaged+o.Lost+o.damagedMark > 0
}

// markDamaged stores in the file how many records were lost. It must be called before progress is
// stored. Otherwise an interrupted recovery would leave a file that looks undamaged.
func (o *Orphan) markDamaged() error {
	if o.marked || !o.LacksRecords() {
		return nil
	}
	err := o.store(StateDamaged, o.word(max(1, o.damagedMark, o.DamagedBefore+o.Damaged+o.Lost)))
	o.marked = err == nil
	return err
}

// Translate maps the stream numbers of the file to stream numbers of this process. It must be called
// after each Load. If the dictionary panics for a stream, its records are omitted, like the records
// of an undefined stream, and Translate returns an error.
func (o *Orphan) Translate() (err error) {
	o.streams = map[uint32]uint32{}
	if o.dict == nil {
		return nil
	}
	bad := map[uint32]bool{}
	for id, def := range o.Streams {
		if e := contain.Call(func() { o.streams[id] = o.dict.Stream(def) }); e != nil {
			bad[id], err = true, fmt.Errorf("slab: Stream of the dictionary failed for records in %s: %w", o.Path, e)
		}
	}
	n := len(o.Records)
	o.Records = slices.DeleteFunc(o.Records, func(r batch.Record) bool { return bad[r.Stream] })
	lost := uint64(n - len(o.Records))
	o.Undefined += lost
	o.Lost += lost
	return err
}

// Take returns a batch of the next records, up to the limits. It returns at least one record if any
// is left. The batch uses the memory of c.
func (o *Orphan) Take(c *Copy, l batch.Limits) *batch.Batch {
	c.Data, c.Slots = c.Data[:0], c.Slots[:0]
	for _, r := range o.Records[o.next:] {
		if n := len(c.Slots); n > 0 && (len(c.Data)+len(r.Data) > l.Bytes || l.Records > 0 && n == l.Records) {
			break
		}
		if id, ok := o.streams[r.Stream]; ok {
			r.Stream = id
		}
		c.Slots = append(c.Slots, layout.Slot{
			Ticket: r.Ticket, Time: r.Time, Off: uint32(len(c.Data)), Len: uint32(len(r.Data)),
			Stream: r.Stream, Level: int8(r.Level),
		})
		c.Data = append(c.Data, r.Data...)
	}
	o.next += len(c.Slots)
	c.Batch.Reset()
	c.Batch.Codec, c.Batch.Origin = o.Codec, o.UUID
	c.Batch.Add(layout.NewRun(c.Data, c.Slots))
	return &c.Batch
}

// Persist stores in the file that the records returned by Take are delivered or dropped.
func (o *Orphan) Persist() {
	if o.next == 0 || o.Records[o.next-1].Ticket <= o.Acked {
		return
	}
	ticket := o.Records[o.next-1].Ticket
	Point(PointPersist)
	if o.markDamaged() != nil || o.noteUnnamed(ticket) != nil {
		return // records may be delivered twice, but the damage is not forgotten
	}
	if o.store(StateAcked, ticket, ticket) == nil { // also stores AckedToo. If it fails, records are delivered twice; none is lost
		o.Acked = ticket
	}
	Point(PointPersisted)
}

// noteUnnamed counts the frames in the companion file that belong to records above ticket and are
// not listed in the state page, and stores the number in the state page. It must be called before
// progress is stored. Otherwise a recovery after a kill would count these records as lost.
func (o *Orphan) noteUnnamed(ticket uint64) error {
	left := slices.DeleteFunc(slices.Clone(o.unnamed), func(t uint64) bool { return t <= ticket })
	if len(left) == len(o.unnamed) {
		return nil
	}
	if err := o.store(StateBigMore, o.word(uint64(len(left)))); err != nil {
		return err
	}
	o.unnamed = left
	return nil
}

// store writes words to the state page, at the given offset.
func (o *Orphan) store(at uintptr, words ...uint64) error {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	_, err := o.f.WriteAt(b, int64(Page+at))
	return err
}

// Finish removes the file, whose records are all delivered or dropped. If the file is damaged,
// Finish renames it instead.
func (o *Orphan) Finish() {
	if o.IsDamaged() {
		_ = SetAside(o.Path)
	} else {
		Remove(o.Path)
	}
	o.f.Close()
}

// Done reports whether Take has returned all records.
func (o *Orphan) Done() bool { return o.next == len(o.Records) }

// Close releases the lock of the file without changing the file.
func (o *Orphan) Close() { o.f.Close() }

package slab

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
)

// dead is what dead processes have left.
type dead struct {
	files   []*orphan // to be delivered first
	left    int       // records in them that are not settled
	stats   CrashRecovery
	sending bool // the batch under way is theirs
}

// An orphan is the file of a dead process, as the Writer counts it.
type orphan struct {
	*crashfile.Orphan
	n int // records that were not settled when it was found
}

// adopt adopts the files of dead processes in the directory and counts their records.
// Nothing in it keeps the Writer from starting.
func (w *Writer) adopt(form crashfile.Form) {
	a := crashfile.Adoption{
		Dir: w.o.Crash.Dir, Dict: w.wants.Dictionary, Held: w.to.Held,
		Codec: w.o.Codec, Form: form, Other: w.o.Crash.Codec,
	}
	if w.crash != nil {
		a.Own = w.crash.file.Path()
	}
	found, refused := a.Adopt()
	for _, r := range refused {
		w.refuseOrphan(r)
	}
	for _, f := range found {
		if points {
			point(ptAdopt)
		}
		o := &orphan{Orphan: f}
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

// refuseOrphan reports a file that is not adopted.
func (w *Writer) refuseOrphan(r crashfile.Refusal) {
	if r.Damaged {
		w.mu.Lock()
		w.dead.stats.DamagedFiles++
		w.mu.Unlock()
	}
	w.events.Post(batch.Event{Output: w.o.Name, Op: "recover", Err: r.Err})
}

// countOrphan enters into the account what is in a file.
func (w *Writer) countOrphan(o *orphan) {
	o.n = len(o.Records)
	w.dead.left += o.n
	w.dead.stats.add(o.Image)
	w.dead.stats.Undefined += o.Lost
	w.dead.stats.Held += o.LeftOut
	w.book.Recovered += uint64(o.n) + o.Damaged + o.Lost
	w.book.Dropped[batch.Corrupt] += o.Damaged + o.Lost
	report := func(n uint64, format string, args ...any) {
		w.events.Post(batch.Event{Output: w.o.Name, Op: "recover", Count: n, Err: fmt.Errorf("slab: %s: "+format, append([]any{o.Path}, args...)...)})
	}
	if o.IsDamaged() {
		w.dead.stats.DamagedFiles++
	}
	switch {
	case o.LacksRecords():
		report(o.Damaged+o.Lost, "it is damaged, %s: left out; the file will be renamed to %s", o.Damage(), crashfile.BadSuffix)
	case o.IsDamaged():
		report(0, "it is damaged, %s: records may arrive twice, and counts may be missing; the file will be renamed to %s", o.Damage(), crashfile.BadSuffix)
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

// translateNext is Translate for the file whose turn it is.
func (w *Writer) translateNext() {
	o := w.dead.files[0]
	whole := !o.IsDamaged()
	n, err := o.Translate()
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

// nextRecovered makes the next records of a dead process the batch. It reports
// false when a file is finished: delivered first, then progress persisted, then
// unlinked.
func (w *Writer) nextRecovered() bool {
	d, o := &w.d, w.dead.files[0]
	if o.Image == nil && !w.loadOrphan(o) {
		return false
	}
	if !o.Translated() {
		w.translateNext()
	}
	o.Persist(o.Offered())
	if o.Done() {
		o.Finish()
		w.dead.files[0] = nil
		w.dead.files = w.dead.files[1:]
		d.all.Codec, d.all.Origin = w.o.Codec, w.id
		return false
	}
	if points {
		point(ptRecover)
	}
	l := w.wants.Limits
	if l.Bytes <= 0 || l.Bytes > w.o.SlabBytes {
		l.Bytes = w.o.SlabBytes
	}
	b := o.Take(&d.copied, l)
	d.all.Reset()
	d.all.Codec, d.all.Origin = o.Codec, o.UUID
	d.all.Add(b.Runs[0])
	d.now = &d.all
	w.mu.Lock()
	w.dead.sending = true
	w.book.inflight = d.all.Len()
	w.gauge.inflightTime, w.gauge.seen = d.all.Runs[0].Slot(0).Time, time.Since(w.born)
	w.dead.left -= w.book.inflight
	w.mu.Unlock()
	return true
}

// loadOrphan reads a file again, whose turn has come. What is no longer there
// counts as corrupt.
func (w *Writer) loadOrphan(o *orphan) bool {
	err := o.Load()
	now := 0
	if err == nil {
		now = len(o.Records)
	}
	w.mu.Lock()
	w.dead.left += now - o.n
	if now >= o.n {
		w.book.Recovered += uint64(now - o.n)
	} else {
		w.countDropLocked(batch.Corrupt, o.n-now)
	}
	w.mu.Unlock()
	o.n = now
	if err != nil {
		w.dead.files = w.dead.files[1:]
		w.refuseOrphan(o.Refuse(o.Path, err))
	}
	return err == nil
}

// What package crashfile says of slabs, too.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(batch.Slot{})-batch.SlotBytes]
	_ = [1]struct{}{}[MinSlabBytes-crashfile.MinSlabBytes]
	_ = [1]struct{}{}[MaxSlabBytes-crashfile.MaxSlabBytes]
	_ = [1]struct{}{}[MaxSlabCount-crashfile.MaxSlabCount]
)

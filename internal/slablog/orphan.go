package slablog

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/slab"
)

// found contains the files of dead processes. store.mu guards files, left, cut and stats.
type found struct {
	store *store

	// files has the oldest file first. The records in the files are delivered before those of this
	// process.
	files []*orphan
	// left is the number of records of dead processes that are neither settled nor leased.
	left  int
	cut   bool // Log.End has returned an unsettled lease to its file
	stats slab.CrashRecovery
}

// An orphan is the file of a dead process. All files are read when they are found, so that their
// records are in the account from the start. Only the first one stays in memory; the others are read
// again when their turn comes.
//
//	found, counted ─▶ loaded ─▶ leased, batch by batch ─▶ removed
type orphan struct {
	*crashfile.Orphan
	n int // number of unsettled records when the file was last read
}

// adopt takes over the files of dead processes in the directory and counts their records. It
// reports errors, which do not prevent the start of the Writer.
func (f *found) adopt(form crashfile.Form, dict batch.Dictionary, held crashfile.HeldBy) {
	a := crashfile.Adoption{
		Dir: f.store.conf.o.Crash.Dir, Dict: dict, Held: held,
		Codec: f.store.conf.o.Codec, Form: form, Other: f.store.conf.o.Crash.Codec,
	}
	if f.store.crash != nil {
		a.Own = f.store.crash.file.Path()
	}
	files, refused := a.Adopt()
	for _, err := range refused {
		f.refuseOrphan(err)
	}
	for _, file := range files {
		point(ptAdopt)
		o := &orphan{Orphan: file}
		f.countOrphan(o)
		if len(f.files) > 0 {
			o.Image = nil
		}
		f.files = append(f.files, o)
	}
	if f.left > 0 {
		f.store.conf.events.Post("recovered-from-disk", nil, uint64(f.left))
	}
}

// refuseOrphan reports a file that is not adopted because of err.
func (f *found) refuseOrphan(err error) {
	if errors.Is(err, crashfile.ErrDamaged) {
		f.store.lock()
		f.stats.DamagedFiles++
		f.store.unlock()
	}
	f.store.conf.events.Post("recover", err, 0)
}

// countOrphan adds the records of a file to the account. A lost record counts as recovered and as
// dropped, so that the account shows it. Each kind of loss is reported, and damage even if no
// record is lost.
func (f *found) countOrphan(o *orphan) {
	o.n = len(o.Records)
	f.left += o.n
	r := &f.stats
	r.Files++
	r.Records += uint64(len(o.Records))
	r.Oversize += o.Oversize
	r.Evicted += o.Evicted
	r.HeapOnly += o.HeapOnly
	r.Unreturned += o.Unreturned
	r.Damaged += o.Damaged
	r.Undefined += o.Lost
	r.Held += o.LeftOut
	f.store.book.Recovered += uint64(o.n) + o.Damaged + o.Lost
	f.store.book.Dropped[batch.Corrupt] += o.Damaged + o.Lost
	report := func(n uint64, format string, args ...any) {
		f.store.conf.events.Post("recover", fmt.Errorf("slab: %s: "+format, append([]any{o.Path}, args...)...), n)
	}
	if o.StreamErr != nil {
		f.store.conf.events.Post("recover", o.StreamErr, 0)
	}
	if o.IsDamaged() {
		r.DamagedFiles++
	}
	switch {
	case o.LacksRecords():
		report(o.Damaged+o.Lost, "damaged: lost %s; the file will be renamed to %s", o.Damage(), crashfile.BadSuffix)
	case o.IsDamaged():
		report(0, "damaged: %s; records may be delivered twice and counts may be incomplete; the file will be renamed to %s", o.Damage(), crashfile.BadSuffix)
	}
	if o.OtherBoot {
		r.OtherBoot++
	}
	if o.OtherBoot && o.n > 0 {
		report(0, "written before the last boot: records that had not reached the disk are lost")
	}
	if o.HeapOnly > 0 {
		report(o.HeapOnly, "%d records larger than a slab were only in the memory of the process and are lost", o.HeapOnly)
	}
	if o.MovedToHeap {
		r.MovedToHeap++
		report(0, "damaged while its process was running: records accepted after that were only in memory, and those not delivered are lost")
	}
}

// next leases the next records of a dead process. When all records of a file are delivered and the
// progress is stored, next removes the file and returns nil.
func (f *found) next(lim batch.Limits) *Lease {
	o := f.files[0]
	if o.Image == nil && !f.loadOrphan(o) {
		return nil
	}
	// The previous lease is settled, because the reader leases one batch of these records at a time.
	o.Persist()
	s := f.store
	if o.Done() {
		o.Finish()
		s.lock()
		f.files[0] = nil
		f.files = f.files[1:]
		s.unlock()
		return nil
	}
	point(ptRecover)
	if lim.Bytes <= 0 || lim.Bytes > f.store.conf.o.SlabBytes {
		lim.Bytes = f.store.conf.o.SlabBytes
	}
	l := &Lease{s: s}
	b := o.Take(&l.mem, lim)
	l.b.Codec, l.b.Origin = o.Codec, o.UUID
	l.b.Add(b.Runs[0])
	s.lock()
	defer s.unlock()
	if s.life == ended {
		return nil
	}
	l.found, l.open, l.at, l.since = true, l.b.Len(), l.b.Runs[0].Slot(0).Time, time.Since(f.store.conf.born)
	s.leases.list = append(s.leases.list, l)
	f.left -= l.open
	return l
}

// leave closes the files, whose unsettled records stay for the next process. If the last lease is
// settled, leave first stores that, because next is not called again.
func (f *found) leave() {
	f.store.lock()
	settled := !f.cut && !slices.ContainsFunc(f.store.leases.list, func(l *Lease) bool { return l.found && l.open > 0 })
	f.store.unlock()
	for _, o := range f.files {
		if settled && o.Image != nil {
			if o.Persist(); o.Done() {
				o.Finish()
				continue
			}
		}
		o.Close()
	}
}

// loadOrphan reads the current file again, which another program may have changed since it was
// counted. Records that are no longer in it count as corrupt, and new ones as recovered.
func (f *found) loadOrphan(o *orphan) bool {
	err := o.Load()
	now := 0
	if err == nil {
		_ = o.Translate() // an error was reported when the file was found
		now = len(o.Records)
	}
	f.store.lock()
	f.left += now - o.n
	if now >= o.n {
		f.store.book.Recovered += uint64(now - o.n)
	} else {
		f.store.countDropLocked(batch.Corrupt, o.n-now)
	}
	if err != nil {
		f.files = f.files[1:]
	}
	f.store.unlock()
	if o.n = now; err != nil {
		f.refuseOrphan(o.Refuse(o.Path, err))
	}
	return err == nil
}

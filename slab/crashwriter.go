package slab

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
)

// openSlabs makes the blocks, in mapped memory if that is asked for and to be
// had, and adopts the files of dead processes.
func (w *Writer) openSlabs() error {
	o := &w.o
	if o.Crash == nil {
		w.pool.free = newSlabs(o.SlabBytes, o.SlabCount)
		return nil
	}
	form, err := crashfile.FormOf(o.Codec)
	if err != nil {
		return err
	}
	c, err := openCrash(o, form, w.wants.Dictionary)
	switch {
	case err == nil:
		w.crash, w.pool.free = c, slices.Clone(c.blocks)
		w.id = c.file.ID() // it outlives this process
		c.watch = time.AfterFunc(time.Hour, w.watchSend)
		c.watch.Stop()
	case o.Crash.Required:
		return err
	default:
		w.crashErr = err
		w.pool.free = newSlabs(o.SlabBytes, o.SlabCount)
		w.events.Post(batch.Event{Output: o.Name, Op: "crash-safe", Err: fmt.Errorf("%w; going on with slabs on the heap, which do not survive this process", err)})
	}
	w.adopt(form)
	return nil
}

// putMapped is WriteRecord into mapped memory.
func (w *Writer) putMapped(p []byte, m batch.Meta) error {
	w.mu.lockPut()
	if !w.crash.file.KnowsStream(m.Stream) {
		w.mu.put.Unlock()
		w.learnStream(m.Stream)
		w.mu.lockPut()
	}
	if len(p)+batch.SlotBytes > w.room || m.Level >= w.flush.Level() {
		return w.putSlow(p, m)
	}
	if w.storeGuarded(p, m) {
		return w.putSlowLocked(p, m)
	}
	if points {
		point(ptStoredLocked)
	}
	w.mu.put.Unlock()
	if points {
		point(ptReturn)
	}
	return nil
}

// storeGuarded is block.store into mapped memory, for a record that is not the first
// of its piece, written out: the call would be a tenth of what it does. It is called
// with mu.put held. After a fault it reports true, holds all of mu, the slabs are on the
// heap, and no ticket was given out.
func (w *Writer) storeGuarded(p []byte, m batch.Meta) (faulted bool) {
	old := debug.SetPanicOnFault(true)
	faulted = true // until it is done
	defer func() {
		if faulted {
			w.catchStore(old, recover())
		}
	}()
	b := w.cur
	off := b.off
	s := (*slotWords)(unsafe.Add(b.top, -b.n*batch.SlotBytes))
	b.fence(s, off+len(p))
	s[1], s[2], s[3] = uint64(m.Time), pair(uint32(off), uint32(len(p))), tail(m)
	copy(unsafe.Slice((*byte)(unsafe.Add(b.base, off)), len(p)), p)
	if points {
		point(ptCopiedLocked)
	}
	s[0] = w.next + 1
	debug.SetPanicOnFault(old)
	w.next++
	b.off = off + len(p)
	b.n++
	w.room -= len(p) + batch.SlotBytes
	return false
}

// catchStore ends a store that has panicked. A panic that is no fault goes on.
func (w *Writer) catchStore(old bool, r any) {
	debug.SetPanicOnFault(old)
	if !w.isFault(r) { // in the caller's own bytes, say: it is the caller's to deal with
		w.mu.put.Unlock()
		panic(r)
	}
	w.mu.slabs.Lock()
	w.caught(r)
}

// mapped reports whether new records go to mapped memory. mu is held.
func (w *Writer) mapped() bool {
	return w.crash != nil && w.crash.broken == nil && w.crash.file.Bytes() != nil && !w.crash.ended
}

// lookAtFile looks whether the mapped file is intact, before mu is taken for a visit
// that may take from it: system calls are nothing to let callers wait for.
func (w *Writer) lookAtFile() {
	if w.crash != nil && !w.crash.fault.Load() {
		w.d.damage = w.crash.file.Intact()
	}
}

// take is takeLocked where mapped memory may be damaged. It reports false if it
// was: the slabs are on the heap now, and the caller looks again.
func (w *Writer) take() bool {
	if !w.mapped() {
		w.takeLocked()
		return true
	}
	faulted := false
	if err := w.d.damage; err == nil {
		w.tryTakeLocked(&faulted)
	} else {
		w.toHeapLocked(err)
		faulted = true
	}
	if !faulted {
		return true
	}
	d := &w.d
	for i, p := range d.pieces { // popped, and not readable
		w.countDropLocked(batch.Corrupt, p.len())
		p.inflight = false
		w.releaseLocked(p)
		d.pieces[i] = nil
	}
	d.pieces = d.pieces[:0]
	d.all.Reset()
	d.now, w.book.inflight = nil, 0
	return false
}

func (w *Writer) tryTakeLocked(faulted *bool) {
	defer w.catchFault(true, faulted)
	w.takeLocked()
	for _, p := range w.d.pieces {
		if !p.sound() { // truncated, and made longer again
			w.toHeapLocked(crashfile.ErrTruncated)
			*faulted = true
			return
		}
	}
}

// ackLocked persists how far everything is settled, in any case before the memory is
// used again.
func (w *Writer) ackLocked() {
	var faulted bool
	defer w.catchFault(debug.SetPanicOnFault(true), &faulted)
	if points {
		point(ptAckLocked)
	}
	t, sent := w.watermarkLocked(), w.progress.sent
	switch {
	case len(w.loans.open) > 0: // the last of them may be in Borrow, and not among those sent
		t = w.loans.open[0].b.First() - 1
		for _, l := range w.loans.open {
			sent -= min(sent, uint64(l.b.Len()+l.behind))
		}
	case len(w.d.pieces) > 0 && (w.book.inflight > 0 || !w.wants.Inline): // the batch under way is as it was
		t = w.d.pieces[0].first - 1
	}
	w.forgetSettledLocked(w.d.pieces, t)
	w.crash.file.Ack(t)
	if points {
		point(ptAckedLocked)
	}
	w.noteAheadLocked()
	w.crash.file.Skip(t - min(t, sent))
}

// corrupt drops the batch under way: its memory is not what it was.
func (w *Writer) corrupt() {
	w.faulted(crashfile.ErrTruncated)
	w.mu.Lock()
	defer w.unlock()
	if w.life.cutShort() {
		w.d.now = nil
		return
	}
	w.countDropLocked(batch.Corrupt, w.book.inflight)
	w.book.inflight = 0
	w.finishLocked()
}

// batchSound reports whether the index of the batch under way is as it was. A file that
// was truncated and made longer again while the destination had the batch shows in that:
// the destination would be offered zeros again and again.
func (w *Writer) batchSound() (ok bool) {
	defer w.passFault(true)
	for _, p := range w.d.pieces {
		if p.blk.head != nil && !p.sound() {
			return false
		}
	}
	return true
}

// faulted moves the slabs to the heap because of a fault outside of mu.
func (w *Writer) faulted(cause error) {
	w.mu.Lock()
	defer w.unlock()
	w.toHeapLocked(cause)
}

// copyOut replaces the batch under way by a copy on the heap. It runs on the
// drain, where a fault is a panic. It reports false if the memory is not what it was
// when all of it was copied: then nothing may be believed of the copy.
func (w *Writer) copyOut() (ok bool) {
	d := &w.d
	defer w.passFault(true)
	c := &d.copied
	c.Data, c.Slots = c.Data[:0], c.Slots[:0]
	for i := range d.now.Runs {
		r := &d.now.Runs[i]
		c.Slots = r.AppendSlots(c.Slots, uint32(len(c.Data)))
		c.Data = append(c.Data, r.Data()...)
	}
	next := &d.copied.Batch
	next.Reset()
	next.Codec, next.Origin = d.now.Codec, d.now.Origin
	next.Add(batch.NewRun(c.Data, c.Slots))
	d.now = next
	return w.batchSound()
}

// saveOversizeLocked writes an oversize record to the file beside the slabs. It
// lets go of mu meanwhile. The call that brought the record returns after. What
// cannot be written is only in memory or, where Crash.Required is set, refused, unless
// the destination has got it meanwhile.
func (w *Writer) saveOversizeLocked(b *block, p []byte, s batch.Slot) (refused error) {
	big := &w.crash.file.Big
	big.Note(s.Ticket, crashfile.FrameDue)
	w.unlock()
	if points {
		point(ptBigKeep)
	}
	err := big.Store(p, s, w.o.budget())
	w.mu.Lock()
	switch {
	case w.life == retained: // it is in the file, or counted as dropped: see retainLocked
		if errors.Is(err, crashfile.ErrBigClosed) {
			refused = dropErrors[batch.Shutdown]
		}
	case err != nil && b.refs > 0:
		if w.o.Crash.Required && w.withdrawLocked(b) {
			refused = dropErrors[batch.Failed]
			if w.waitingLocked() > 0 {
				w.serveLocked()
				w.setRoomLocked()
			}
			break
		}
		b.unsafe = true
		w.crash.heapOnly++
		w.noteHeapHeldLocked()
		if w.crash.heapOnly == 1 {
			w.events.Post(batch.Event{Output: w.o.Name, Op: "crash-safe", Count: 1,
				Err: fmt.Errorf("slab: cannot keep a record larger than a slab on disk, it is only in memory: %w", err)})
		}
	case err == nil && b.refs > 0:
		w.expectBigLocked(s.Ticket)
	}
	return refused
}

// withdrawLocked takes an oversize record out of the queue again and counts it as
// dropped. It reports false if the drain has it.
func (w *Writer) withdrawLocked(b *block) bool {
	for i := range w.queue.n {
		p := w.queue.at(i)
		if p.blk != b {
			continue
		}
		w.queue.remove(i)
		w.countDropLocked(batch.Failed, 1)
		w.guardLocked(func() { w.noteEvictedLocked(1) })
		w.releaseLocked(p)
		return true
	}
	return false
}

// leaveBigLocked is told that an oversize record is pending no more.
func (w *Writer) leaveBigLocked(b *block) {
	switch {
	case b.unsafe:
		w.crash.heapOnly--
		w.noteHeapHeldLocked()
	case w.mapped():
		w.forgetBigLocked(b.slot(0).Ticket)
		what := crashfile.FrameSettled
		if b.evicted {
			what = crashfile.FrameEvicted
		}
		w.crash.file.Big.Note(b.slot(0).Ticket, what)
	}
}

// buryForLocked buries evicted records for a call that has evicted such records for one that fits
// a slab. It lets go of mu meanwhile.
func (w *Writer) buryForLocked() {
	if w.crash != nil && w.crash.toBury {
		w.crash.toBury = false
		w.unlock()
		w.crash.file.Big.Bury()
		w.mu.Lock()
	}
}

// guardLocked runs f, which touches mapped memory, with mu held. After a fault
// the slabs are on the heap.
func (w *Writer) guardLocked(f func()) {
	if !w.mapped() {
		return
	}
	var faulted bool
	defer w.catchFault(debug.SetPanicOnFault(true), &faulted)
	f()
}

// noteEvictedLocked counts n evicted records in the file, so that recovery can
// tell them from calls that never returned. It may fault.
func (w *Writer) noteEvictedLocked(n int) {
	if n > 0 && w.mapped() {
		w.crash.file.Evict(n)
	}
}

// noteAheadLocked says in the file how many records of slabs that are free again are
// settled behind one that is not, so that recovery can tell them from calls that never
// returned. It may fault.
func (w *Writer) noteAheadLocked() {
	n := uint64(0)
	for _, l := range w.loans.open {
		n += uint64(l.b.Len() + l.behind)
		for _, p := range l.pieces {
			n -= uint64(p.len())
		}
	}
	w.crash.file.SetAhead(n)
}

func (w *Writer) noteHeapHeldLocked() {
	w.guardLocked(func() { w.crash.file.SetHeapHeld(w.crash.heapOnly) })
}

// noteHeapFromLocked says in the file that later records are not in it, if that
// can still be written.
func (w *Writer) noteHeapFromLocked() {
	defer w.passFault(debug.SetPanicOnFault(true))
	w.crash.file.SetHeapFrom(w.next + 1)
}

// resetLocked is block.reset for a block that may be mapped. It reports false
// after a fault: then the slabs are on the heap.
func (w *Writer) resetLocked(b *block, first uint64) bool {
	if b.head == nil {
		b.reset(first)
		return true
	}
	done := false
	w.guardLocked(func() { b.reset(first); done = true })
	return done
}

// retainLocked leaves every record that is not settled in the crash-safe file, for the
// next process. Records without a copy there are dropped, and writes that wait are refused.
// It reports false if the file cannot keep them.
func (w *Writer) retainLocked() bool {
	if w.life == retained { // by the drain, whose destination then did not end in time
		return true
	}
	if !w.mapped() {
		return false
	}
	w.crash.file.Big.Close()
	lost := w.nowhereLocked(w.d.pieces...)
	for _, l := range w.loans.open {
		if !l.counted { // in a Borrow that has not returned
			lost += w.nowhereLocked(l.pieces...)
		} else if l.left > 0 {
			w.loseLocked(l)
		}
	}
	w.book.hungLost = lost
	for i := range w.queue.n {
		lost += w.nowhereLocked(w.queue.at(i))
	}
	w.sumAllLocked()
	w.book.retained = w.book.inflight + int(w.pendingSlabLocked()) - lost
	w.book.Dropped[batch.Shutdown] += uint64(lost)
	w.book.inflight = 0
	w.life.become(retained)
	w.refuseWaitersLocked()
	return true
}

// unretainLocked drops what was left in the file, which is damaged.
func (w *Writer) unretainLocked() {
	lost := uint64(w.book.retained)
	w.book.retained = 0
	for _, l := range w.loans.open { // those that came back
		if l.settled && l.counted {
			kept := l.left - min(uint64(w.nowhereLocked(l.pieces...)), l.left)
			w.loans.back -= kept
			lost += kept
		}
	}
	w.book.Dropped[batch.Shutdown] += lost
}

// nowhereLocked returns how many records larger than a slab have no copy on disk. The
// file of such records is closed: calls that were about to write to it will not.
func (w *Writer) nowhereLocked(pieces ...*piece) (n int) {
	for _, p := range pieces {
		if p == nil {
			continue
		}
		if b := p.blk; b.kind == oversize && (b.unsafe || !w.crash.file.Big.Holds(b.slot(0).Ticket)) {
			n++
		}
	}
	return n
}

// unrecoverLocked gives the unsettled batch of a dead process back to its file.
func (w *Writer) unrecoverLocked() {
	if w.dead.sending {
		w.dead.left += w.book.inflight
		w.book.inflight = 0
		w.dead.sending = false
	}
}

// endCrashLocked lets go of the files: those with nothing left are removed.
func (w *Writer) endCrashLocked() {
	if c := w.crash; c != nil {
		c.watch.Stop()
		c.ended = true
		if w.life == retained {
			c.file.Release()
		} else {
			c.file.Remove()
		}
		c.file.Leave()
	}
}

func (w *Writer) crashStatsLocked(s *Stats) {
	s.Recovery = w.dead.stats
	if w.crash != nil {
		s.HeapOnly = w.crash.heapOnly
	}
	switch {
	case w.crashErr != nil:
		s.CrashUnsafe = w.crashErr.Error()
	case w.crash != nil && w.crash.broken != nil:
		s.CrashUnsafe = w.crash.broken.Error()
	}
}

// learnStream writes the definition of a stream before the first record that uses it. It is
// called by a write, without mu, because it calls the dictionary. If there is no definition,
// or it cannot be written, that is reported: recovery omits the records of the stream.
func (w *Writer) learnStream(id uint32) {
	f := w.crash.file
	def, ok, err := f.DefineStream(id)
	w.mu.Lock()
	defer w.unlock()
	if f.KnowsStream(id) { // a concurrent call was first
		return
	}
	f.KnowStream(id)
	w.guardLocked(func() {
		if err == nil {
			err = f.AddStream(id, def, ok)
		}
	})
	if err != nil {
		w.events.Post(batch.Event{Output: w.o.Name, Op: "crash-safe", Err: fmt.Errorf(
			"slab: cannot keep what stream %d stands for: what is left of it when this process dies will be set aside: %w", id, err)})
	}
}

// expectBigLocked notes that the frame of a record is written.
func (w *Writer) expectBigLocked(ticket uint64) {
	w.guardLocked(func() { w.crash.file.ExpectFrame(ticket) })
	if points {
		point(ptBigNotedLocked)
	}
}

// forgetBigLocked notes that the record is no longer pending.
func (w *Writer) forgetBigLocked(ticket uint64) {
	w.guardLocked(func() { w.crash.file.ForgetFrame(ticket) })
}

// forgetSettledLocked forgets the oversize records of pieces up to a ticket, before the file
// is told that they are settled.
func (w *Writer) forgetSettledLocked(pieces []*piece, ticket uint64) {
	if n, _ := w.crash.file.Frames(); n == 0 {
		return
	}
	for _, p := range pieces {
		if p.blk.kind == oversize && p.first <= ticket {
			w.forgetBigLocked(p.first)
		}
	}
}

package forebay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
)

// defaultSlotBytes is the default capacity of a [Slot].
const defaultSlotBytes = 1 << 20

// slotRecordBytes is the overhead of a record in a Slot.
const slotRecordBytes = 32

var (
	// errFull is returned for a record that does not fit while the slot has no destination. The
	// record is counted as dropped{full}.
	errFull = errors.New("forebay: slot is full and has no destination yet")

	errSlotSet = errors.New("forebay: cannot set destination of slot: it has one already")
)

// A Slot is a writer whose destination is set later, with [Slot.Set]. Until then it holds
// records in memory. It is for records logged before the configuration is read or a connection
// is established. Pass a Slot to [Writer] like any other writer. Its account is in [Router.Stats].
// All methods are safe for concurrent use.
type Slot struct{ s *slot }

// NewSlot returns a Slot without a destination. It holds up to maxBytes bytes, including 32
// bytes of overhead per record; later records are dropped and counted. If maxBytes is 0 or
// less, the limit is 1 MiB. opts are options of an output. BusyTimeout and OnError apply to a
// destination without a method WriteRecord: the Slot writes to it like a direct output.
func NewSlot(maxBytes int, opts ...OutputOption) *Slot {
	spec := OutputSpec{name: "slot"}
	for _, opt := range opts {
		if opt != nil {
			opt.applyOutput(&spec)
		}
	}
	if maxBytes <= 0 {
		maxBytes = defaultSlotBytes
	}
	if spec.busy <= 0 {
		spec.busy = defaultBusyTimeout
	}
	return &Slot{&slot{name: spec.name, limit: maxBytes, busy: spec.busy, events: newReporter(spec.onError)}}
}

// Write is like WriteRecord with a zero Meta, except that it returns a nil error for a record
// that does not fit.
func (s *Slot) Write(p []byte) (int, error) { return s.s.Write(p) }

// WriteRecord passes p to the destination and returns its error. If there is no destination, it
// stores a copy of p; if the copy does not fit, it returns an error and counts the record as
// dropped{full}. After Close the error wraps [batch.ErrClosed]. WriteRecord does not retain p.
func (s *Slot) WriteRecord(p []byte, m batch.Meta) error { return s.s.WriteRecord(p, m) }

// Set sets the destination of the slot. The calling goroutine passes the stored records to w in
// order, before any newer record. Afterwards each record goes directly to w: through its method
// WriteRecord if it has one, otherwise as to a direct output. Closing the slot closes w.
//
// If w fails before it has received all stored records, Set returns the error. The slot keeps the
// record that failed and the ones after it, and Set may be called again with w or another writer. A
// record that w accepts into its account and drops is not a failure. A destination cannot be
// replaced after a successful Set.
func (s *Slot) Set(w io.Writer) error { return s.s.set(w) }

// Flush flushes the destination. Without a destination it returns an error if the slot holds
// records.
func (s *Slot) Flush(ctx context.Context) error { return s.s.Flush(ctx) }

// Close refuses new records and closes the destination, within 5 s. Without a destination, the
// stored records are dropped and counted, and the error contains their number. Close may be called
// more than once.
func (s *Slot) Close() error {
	_, err := s.s.Shutdown(context.Background())
	return err
}

// A slot is the writer that a [Slot] wraps. A Router uses its optional methods, such as Account and
// Shutdown.
type slot struct {
	name   string
	limit  int
	busy   time.Duration
	events *reporter

	// dst is nil until the destination has received all stored records.
	dst       atomic.Pointer[output]
	refused   atomic.Uint64
	busyDrops atomic.Uint64 // number of records dropped because Set took longer than busy
	moving    atomic.Int64  // number of records that the current Set has removed and not yet passed on

	// mu guards the fields below. It is held for the time of a copy at most, and never while the
	// destination is called.
	mu          sync.Mutex
	data        []byte // the stored records, concatenated
	recs        []slotRecord
	taken       int           // size of the records that the current Set has removed, with overhead
	full        uint64        // number of records dropped because they exceeded the limit
	shutdown    uint64        // number of records dropped because no destination was set
	failed      *output       // output of the last Set that failed; nil if there is none
	setting     chan struct{} // not nil during a Set; Set closes the channel when it returns
	writersWait bool          // a call of WriteRecord waits for the end of the current Set
	closed      bool
	target      *output         // the destination of the current Set
	ending      context.Context // context of a Shutdown that ended before the current Set; nil if there is none
	tried       []*output       // outputs of failed Sets, for their accounts
}

// A slotRecord is a stored record: its length in bytes and its Meta.
type slotRecord struct {
	n int
	m batch.Meta
}

// Name returns the name passed to NewSlot with the option Name. The default is "slot".
func (s *slot) Name() string { return s.name }

// writesInCaller makes s a lateRecorder, because the destination of s may write in the calling
// goroutine.
func (s *slot) writesInCaller() {}

// Write implements Slot.Write.
func (s *slot) Write(p []byte) (int, error) {
	if err := s.WriteRecord(p, batch.Meta{}); err != nil && !errors.Is(err, errFull) {
		return 0, err
	}
	return len(p), nil
}

// WriteRecord implements Slot.WriteRecord.
func (s *slot) WriteRecord(p []byte, m batch.Meta) error {
	for {
		if dst := s.dst.Load(); dst != nil {
			return passOn(dst, p, m)
		}
		wait, err := s.store(p, m)
		if wait == nil {
			return err
		}
		t := time.NewTimer(s.busy)
		select {
		case <-wait:
			t.Stop()
		case <-t.C:
			s.busyDrops.Add(1)
			return errBusy
		}
	}
}

// passOn writes a record to the destination of a slot. A panic of the destination becomes an error.
func passOn(dst *output, p []byte, m batch.Meta) (err error) {
	finished := false
	defer func() {
		if !finished {
			err = dst.abandon(p, recover())
		}
	}()
	if dst.rec != nil {
		err = dst.writeBuffered(p, m)
	} else {
		err = dst.writeDirect(p)
	}
	finished = true
	return err
}

// store stores a copy of p. If wait is not nil, p was not stored: the caller waits for the channel
// and tries again.
func (s *slot) store(p []byte, m batch.Meta) (wait chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dst.Load() != nil:
		return closedChan, nil
	case s.closed:
		s.refused.Add(1)
		return nil, errClosed
	case s.writersWait:
		return s.setting, nil
	case s.storedBytesLocked()+len(p)+slotRecordBytes > s.limit:
		s.full++
		return nil, errFull
	}
	s.data = append(s.data, p...)
	s.recs = append(s.recs, slotRecord{len(p), m})
	return nil, nil
}

// closedChan is a closed channel: store returns it when the caller may try again at once.
var closedChan = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// storedBytesLocked returns the size of the stored records with their overhead, including those
// that Set is passing on.
func (s *slot) storedBytesLocked() int {
	return s.taken + len(s.data) + slotRecordBytes*len(s.recs)
}

// set implements Slot.Set.
func (s *slot) set(w io.Writer) error {
	w = unwrapWriter(w)
	if isNil(w) {
		return errors.New("forebay: cannot set destination of slot: the writer is nil")
	}
	if w == io.Writer(s) {
		return errors.New("forebay: cannot set destination of slot: it is the slot itself")
	}
	s.mu.Lock()
	if s.closed || s.setting != nil || s.dst.Load() != nil {
		defer s.mu.Unlock()
		if s.closed {
			return errClosed
		}
		return errSlotSet
	}
	m := &slotMove{slot: s, dst: s.output(w)}
	s.setting, s.target = make(chan struct{}), m.dst
	s.mu.Unlock()

	defer m.end()
	for m.take() {
		for m.i < len(m.recs) {
			if err := m.passOne(); err != nil {
				s.mu.Lock()
				s.failed = m.dst
				s.mu.Unlock()
				return fmt.Errorf("forebay: slot %s: destination failed, %s left: %w", s.name, plural.Of(len(m.recs)-m.i, "record"), err)
			}
		}
	}
	return nil
}

// output returns the output for the destination w.
func (s *slot) output(w io.Writer) *output {
	o := &output{w: w, name: s.name, events: s.events, closes: true, first: true}
	if rec, ok := w.(recorder); ok {
		o.rec = rec
		o.account, _ = w.(accounter)
		return o
	}
	if f := s.failed; f != nil && f.direct != nil && sameWriter(f.w, w) {
		o.direct = f.direct // the destination may need a newline to end a partly written line
	} else {
		o.direct = newDirect(w, s.name, s.busy, s.events)
	}
	o.shared = true // output counts each accepted record itself, because slotMove.passOne does not use writeDirect
	return o
}

// A slotMove moves the stored records to the destination, during one Set.
type slotMove struct {
	slot   *slot
	dst    *output
	data   []byte
	recs   []slotRecord
	off, i int // offset in data and index in recs of the next record
	pass   int // number of calls of take that found records
}

// take removes all stored records from the slot, so that set passes them on. If there are none, it
// sets dst and returns false. From the second call on, it makes writers wait for the end of the
// Set; otherwise they could add records faster than the destination accepts them.
func (m *slotMove) take() bool {
	s := m.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = 0
	if len(s.recs) == 0 {
		s.dst.Store(m.dst)
		s.target, s.data, s.recs = nil, nil, nil
		return false
	}
	if m.pass++; m.pass > 1 {
		s.writersWait = true
	}
	s.taken = s.storedBytesLocked()
	m.data, m.recs, m.off, m.i = s.data, s.recs, 0, 0
	s.data, s.recs = nil, nil
	s.moving.Store(int64(len(m.recs)))
	return true
}

// passOne passes the next record to the destination. If the destination fails, passOne returns the
// error and the record is kept.
func (m *slotMove) passOne() (err error) {
	o, rec := m.dst, m.recs[m.i]
	p := m.data[m.off : m.off+rec.n]
	var t tally // discarded: a record whose write fails is kept, not dropped
	finished := false
	defer func() {
		if finished {
			return
		}
		if o.direct != nil {
			err = o.direct.abandon(p, &t, recover())
		} else {
			err = unwound(recover())
		}
		o.fail(err)
	}()
	if o.rec == nil {
		err = o.direct.write(p, &t)
	} else if err = o.rec.WriteRecord(p, rec.m); err != nil && o.account != nil && !refusedForGood(err) {
		err = nil // the writer accepted the record and then dropped it, so the account of the writer contains the record
	}
	finished = true
	if err != nil {
		o.fail(err)
		return err
	}
	if o.account == nil {
		o.accepted.Add(1)
		o.delivered.Add(1)
	}
	m.off += rec.n
	m.i++
	m.slot.moving.Add(-1)
	return nil
}

// sameWriter reports whether a and b are the same writer. If their types are not comparable, it
// returns false.
func sameWriter(a, b io.Writer) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// refusedForGood reports whether err shows that the writer is closed. Such a writer has not
// accepted the record.
func refusedForGood(err error) bool {
	return errors.Is(err, batch.ErrClosed) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

// end returns the remaining records to the slot and wakes the callers that wait for the Set. If
// Shutdown was called meanwhile, end finishes its work.
func (m *slotMove) end() {
	s := m.slot
	s.mu.Lock()
	if m.i < len(m.recs) {
		s.data = append(m.data[m.off:len(m.data):len(m.data)], s.data...)
		s.recs = append(m.recs[m.i:len(m.recs):len(m.recs)], s.recs...)
		s.tried = append(s.tried, m.dst)
	}
	s.target = nil
	s.moving.Store(0)
	s.taken, s.writersWait = 0, false
	close(s.setting)
	s.setting = nil
	ctx := s.ending
	if s.ending = nil; ctx != nil {
		s.dropLocked()
	}
	s.mu.Unlock()
	if ctx != nil && s.dst.Load() == m.dst {
		m.dst.run(ctx, 0, (*output).end, make(chan outcome, 1))
	}
}

// dropLocked drops the stored records of a slot that is closed without a destination.
func (s *slot) dropLocked() {
	s.shutdown += uint64(len(s.recs))
	s.data, s.recs = nil, nil
}

// waitForSet waits until no Set is in progress.
func (s *slot) waitForSet(ctx context.Context) error {
	s.mu.Lock()
	wait := s.setting
	s.mu.Unlock()
	if wait == nil {
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Flush implements Slot.Flush.
func (s *slot) Flush(ctx context.Context) error {
	if err := s.waitForSet(ctx); err != nil {
		return err
	}
	if dst := s.dst.Load(); dst != nil {
		if !dst.flushes() {
			return nil
		}
		_, err := dst.flush(ctx)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.recs); n > 0 {
		return fmt.Errorf("forebay: slot %s has no destination yet for %s", s.name, plural.Of(n, "record"))
	}
	return nil
}

// Sync commits the written records to stable storage, if the destination supports that.
func (s *slot) Sync() error {
	if err := s.waitForSet(context.Background()); err != nil {
		return err
	}
	if dst := s.dst.Load(); dst != nil {
		return dst.sync()
	}
	return nil
}

// Shutdown refuses new records and closes the destination if it has a method Close. Without a
// destination, the stored records are dropped and counted, and the error contains their
// number. If a Set is still in progress when ctx ends, Shutdown returns, and the destination
// is closed at the end of that Set. If ctx has no deadline, the limit is 5 s. Shutdown may be
// called more than once.
func (s *slot) Shutdown(ctx context.Context) (batch.Report, error) {
	ctx, cancel := closetime.Bounded(ctx, 0)
	defer cancel()
	err := s.waitForSet(ctx)
	s.mu.Lock()
	again := s.closed
	s.closed = true
	dst := s.dst.Load()
	switch {
	case s.setting != nil && !again:
		dst, s.ending = nil, ctx
	case s.setting == nil && dst == nil:
		s.dropLocked()
	}
	lost := s.shutdown
	s.mu.Unlock()
	if lost > 0 && err == nil {
		err = fmt.Errorf("forebay: slot %s: close: %s lost: no destination accepted them", s.name, plural.Records(lost))
	}
	var rep batch.Report
	if dst != nil && !again {
		var endErr error
		rep, endErr = dst.end(ctx)
		err = errors.Join(err, endErr)
	}
	rep.Account = s.Account()
	return rep, err
}

// Account returns the account of the destination, plus the records that the slot stores or has
// dropped.
func (s *slot) Account() batch.Account {
	s.mu.Lock()
	pending := uint64(len(s.recs)) + uint64(max(s.moving.Load(), 0))
	var a batch.Account
	a.Dropped[batch.Full] = s.full
	a.Dropped[batch.Shutdown] = s.shutdown
	tried, dst := s.tried, s.target
	if dst == nil {
		dst = s.dst.Load()
	}
	s.mu.Unlock()
	a.Dropped[batch.Busy] = s.busyDrops.Load()
	a.Pending.Slab = pending
	a.Accepted = pending + a.Dropped.Total()
	for _, o := range tried {
		if o.account == nil || dst == nil || !sameWriter(o.w, dst.w) {
			a.Add(o.accountNow())
		}
	}
	if dst != nil {
		a.Add(dst.accountNow())
	}
	return a
}

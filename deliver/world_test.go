package deliver

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/poison"
)

// A trouble is a kind of fault in a world. Each kind happens a limited number of times.
type trouble uint8

const (
	ends        trouble = iota // a session ends with an error
	cleanEnds                  // a session ends without an error
	earlyEnds                  // a session ends before Open has returned
	opens                      // Open fails
	answers                    // an answer has open or refused records
	again                      // a batch is answered twice
	refusals                   // a Send returns an error
	badAppends                 // the spool cannot be written
	badReads                   // the spool cannot be read
	letterWaits                // too many dead letters wait
	waits                      // time passes independently of the machine's timers
	troubles
)

// worldLimits determines the size of a world and the faults that may happen in it.
type worldLimits struct {
	batches, records, window int
	streams                  int // number of streams; records belong to them in turn, and order is kept within each
	may                      [troubles]int
	flavours                 []flavour // of answers; nil: only wholly
	slow                     bool      // batches and reports do not arrive at once
	spool, handler           bool
	keeps                    bool    // the log keeps open records
	full                     bool    // the log is full at some point
	scarce                   bool    // the log is about to drop records at some point
	noRoom                   bool    // no memory for parked records
	poison                   int     // each record whose ticket is a multiple of it ends its session; 0: none does
	mute                     bool    // such a record ends its session after 30 s without an answer
	suspectAnswer            flavour // the answer to such a record at times; wholly: no answer
	sour                     bool    // reference records are refused for a time
	age                      time.Duration
	moves                    *moves                                   // records the state transitions; may be nil
	jitter                   func(lo, hi time.Duration) time.Duration // nil: always hi
}

// A flavour is a kind of answer with open or refused records.
type flavour uint8

const (
	wholly      flavour = iota // all records are open
	partly                     // all records but the first are open
	oneStream                  // the records of one stream are open
	refusingOne                // the first record is refused
	mixedUp                    // the first record is refused, the others are open
	smaller
	searching
	holding
	holdingStream // for the stream of the first record
	holdingAll    // for all streams
	later         // all records are open, with a wait of one minute
	goneForGood
	flavours
)

func (f flavour) outcome(b *batch.Batch, streams int) (o batch.Outcome) {
	o = batch.Outcome{Open: batch.All(), Why: errors.New("busy")}
	n := b.Len()
	switch f {
	case partly:
		o.Open = batch.From(min(1, n-1))
	case oneStream, holdingStream:
		var of []int
		for i, r := range b.All() {
			if r.Ticket%uint64(streams) == b.First()%uint64(streams) {
				of = append(of, i)
			}
		}
		o.Open = batch.Of(of...)
	case refusingOne:
		o = batch.Outcome{Refused: batch.Of(0), Refusal: errors.New("bad")}
	case mixedUp:
		o.Refused, o.Refusal, o.Open = batch.Of(0), errors.New("bad"), batch.From(1)
		if n == 1 {
			o.Open = batch.Set{}
		}
	case later:
		o.After = time.Minute
	}
	o.Advice = map[flavour]batch.Advice{smaller: batch.Smaller, searching: batch.Search, holding: batch.Hold,
		holdingStream: batch.HoldStreams, holdingAll: batch.HoldStreams, goneForGood: batch.Gone}[f]
	return o
}

type frame struct {
	seq     uint64
	tickets []uint64
	out     bool
}

// A world contains the machine under test and simulates its environment: the log, the spool, the
// handler and the destination.
type world struct {
	lim    worldLimits
	mutant mutant
	m      *machine
	led    *ledger
	now    time.Time

	spooling *spooling
	fault    string
	kind     bool // no more faults happen
	used     [troubles]int

	holders     []*holder // of the callers' batches
	frames      []frame   // of the spool, not acknowledged
	seq         uint64
	acc         batch.Account // of the spool
	badApp      bool          // the next Append fails
	badRead     bool          // the next call of Next fails
	lettersWait bool

	s *worldSession

	offered   *entry
	suspects  map[uint64]bool // tickets of records that were parked or refused; they may arrive out of order
	copies    map[uint64]int
	last      map[uint64]uint64 // by stream, the highest ticket whose first copy has arrived
	failures  int
	ended     bool
	closed    int // stage of Close: 1 begun, 2 late, 3 over, 4 abandoned
	released  map[*holder]bool
	leases    []*worldLease
	wasFull   bool
	wasScarce bool
	kills     int
	vain      int // consecutive sessions that settled nothing, without a pause between them
	vainAt    time.Time
}

// A worldSession is one session with its driver and destination.
type worldSession struct {
	pass    passage
	opening bool // Open has not returned
	unmade  bool // Open has failed
	fenced  bool // the outlet has asked the session to close
	closed  bool // Close has returned
	work    []handed
	sent    []*handed // batches whose Send has begun, in order
	arrived int       // number of batches of sent that have arrived at the destination
	reports []report  // not yet read by the outlet
	broken  uint64    // bit set of streams with an open record; none of their later records is stored until all batches are answered
	drain   bool      // an answer had open records, and not all batches are answered
	next    sendMode  // result of the next Send
}

// A handed is a batch that was given to a session.
type handed struct {
	e        *entry
	b        *batch.Batch
	tickets  []uint64
	pin      *holder
	answered bool
	lost     []int // indices of records that the destination did not store
}

// sendMode is the result of a Send.
type sendMode uint8

const (
	sends         sendMode = iota
	sendRefuses            // Send returns an error
	sendAnswers            // Send answers that all records are settled, and returns an error
	sendAnswersNo          // Send answers that all records are open, and returns an error
	sendModes
)

func newWorld(lim worldLimits, mut mutant) *world {
	if lim.streams == 0 {
		lim.streams = 1
	}
	if lim.flavours == nil {
		lim.flavours = []flavour{wholly}
	}
	if lim.jitter == nil {
		lim.jitter = func(lo, hi time.Duration) time.Duration { return hi }
	}
	if lim.age == 0 {
		lim.age = -1
	}
	w := &world{
		lim: lim, mutant: mut, now: time.Unix(1e9, 0), copies: map[uint64]int{}, suspects: map[uint64]bool{},
		last: map[uint64]uint64{}, released: map[*holder]bool{},
	}
	opt, err := (&Options{
		Retry:   &RetryOptions{Min: time.Second, Max: 2 * time.Second, FatalDelay: time.Minute, MaxAge: lim.age, BudgetRatio: 100, BudgetPerSecond: 100},
		Breaker: &BreakerOptions{Failures: 2, Successes: 1, ProbeRecords: 1},
	}).resolve(&Traits{})
	if err != nil {
		panic(err)
	}
	w.led = &ledger{}
	if lim.spool {
		w.led.spill, opt.Spill = w, w
		w.led.look(nil)
	}
	if lim.noRoom {
		opt.ParkedBytes = 0
	}
	w.m = newMachine(&settings{
		moved: lim.moves.add, traits: &Traits{Window: lim.window}, opt: &opt, handler: lim.handler, jitter: lim.jitter,
		post: func(string, error, uint64) {}, deadLetter: func(*batch.Batch, error) {}, lettersFull: func() bool { return w.lettersWait },
		settled: w.led.forget, release: func(h *holder) { w.released[h] = true }, pending: func() uint64 { return 0 },
	}, w.led, newCircuit(*opt.Breaker, lim.jitter))
	w.spooling = &spooling{spill: w, m: w.m, flushes: &flushes{m: w.m}, events: new(callback.Reporter)}
	w.settle()
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// ---- the spool --------------------------------------------------------------

var errSpool = errors.New("no space left")

func (w *world) Append(b *batch.Batch) (uint64, error) {
	if w.badApp {
		w.badApp = false
		return 0, errSpool
	}
	w.seq++
	w.acc.Accepted += uint64(b.Len())
	w.acc.Pending.Spill += uint64(b.Len())
	w.frames = append(w.frames, frame{seq: w.seq, tickets: ticketsOf(b)})
	return w.seq, nil
}

func (w *world) Next() (*batch.Batch, uint64, error) {
	if w.badRead {
		w.badRead = false
		return nil, 0, errSpool
	}
	for i := range w.frames {
		if f := &w.frames[i]; !f.out {
			f.out = true
			w.acc.Pending.Spill -= uint64(len(f.tickets))
			return w.batchOf(f.tickets), f.seq, nil
		}
	}
	return nil, 0, io.EOF
}

func (w *world) Ack(seq uint64) error {
	for len(w.frames) > 0 && w.frames[0].seq <= seq {
		if !w.frames[0].out {
			w.fail("batch %d of the spool is acknowledged, but was never read", w.frames[0].seq)
		}
		for _, e := range w.m.sess.given { // the spool reuses the memory of the batch
			if e.pin != nil && e.pin.custody == ofSpool && e.pin.seq == w.frames[0].seq {
				w.fail("batch %d of the spool is acknowledged while the session may read it", e.pin.seq)
			}
		}
		w.frames = w.frames[1:]
	}
	return nil
}

func (w *world) Account() batch.Account { return w.acc }

func (w *world) stream(ticket uint64) uint64 { return ticket % uint64(w.lim.streams) }

func (w *world) batchOf(tickets []uint64) *batch.Batch {
	var b batch.Batch
	for _, t := range tickets {
		b.Append([]byte{byte(t), '\n'}, t, batch.Meta{Stream: uint32(w.stream(t))})
	}
	return &b
}

// ---- actions of the machine -------------------------------------------------

// settle carries out the actions of the machine until it waits.
func (w *world) settle() {
	defer func() {
		if r := recover(); r != nil {
			w.fail("panic: %v", r)
		}
	}()
	for range 1000 {
		if w.fault != "" || w.ended {
			return
		}
		if !w.lim.slow {
			w.flow()
		}
		a := w.m.next(w.now)
		if a.do == doWait {
			w.check()
			return
		}
		w.do(a)
		w.check()
	}
	w.fail("the machine does not come to rest")
}

// flow sends all waiting batches and passes all reports to the outlet.
func (w *world) flow() {
	for w.s != nil && (w.maySend() || len(w.s.reports) > 0) {
		if w.maySend() {
			w.send()
		} else {
			w.hear(1)
		}
	}
}

func (w *world) do(a action) {
	s := w.s
	switch a.do {
	case doOpen:
		if s != nil && !s.closed {
			w.fail("a second session is opened")
		}
		w.s = &worldSession{opening: true}
		if w.vain++; w.vainAt != w.now {
			w.vain, w.vainAt = 0, w.now
		}
		if w.vain > 20 {
			w.fail("sessions are opened without a pause")
		}
	case doSend:
		switch {
		case s == nil || s.fenced || s.unmade:
			w.fail("a batch is given to no session")
			return
		case len(s.work) > w.lim.window:
			w.fail("there is no room for another batch in the session: the outlet would wait")
		case a.e.place != sent || a.e.b.Len() == 0 && !a.e.orphan:
			w.fail("an entry is given that is not a batch to send")
		}
		s.work = append(s.work, handed{e: a.e, b: a.e.out, tickets: ticketsOf(a.e.out), pin: a.e.pin})
		if n := len(s.work) + s.unanswered(); !w.lim.slow && n > w.lim.window {
			w.fail("%d batches are in flight, the window is %d", n, w.lim.window)
		}
	case doClose:
		if s == nil {
			w.m.sess.closed() // as in outlet.do
			return
		}
		s.fenced, s.pass.over = true, true
	case doSpill:
		e := a.e
		if w.mutant == mutantSpillBehind {
			for _, o := range w.m.queue.ring {
				if o.inMemory() && o.place == waiting {
					e = o
					break
				}
			}
		}
		w.spooling.append(w.now, e)
	case doPull:
		w.spooling.pull(w.now)
	case doForget:
		w.spooling.forget(a.seq)
	case doHandle:
		if w.offered != nil {
			w.fail("the handler is offered two batches")
		}
		w.offered = a.e
	case doEnd:
		w.ended = true
	}
}

// ---- the session ------------------------------------------------------------

func (s *worldSession) unanswered() (n int) {
	for _, h := range s.sent {
		if !h.answered {
			n++
		}
	}
	return n
}

// alive reports whether the driver may still answer or end the session.
func (s *worldSession) alive() bool { return !s.pass.over && !s.unmade }

// post corresponds to life.post.
func (s *worldSession) post(r report) {
	if s.pass.counts(&r) {
		s.reports = append(s.reports, r)
	}
}

// hear passes the n oldest reports to the machine.
func (w *world) hear(n int) {
	s := w.s
	for range n {
		if len(s.reports) == 0 || w.s != s {
			return
		}
		r := s.reports[0]
		s.reports = s.reports[1:]
		switch {
		case r.kind == reportAnswer:
			w.hearAnswer(&r)
		case r.kind == reportEnd && w.mutant == mutantEarlyEnd && w.m.sess.state == opening:
		default:
			w.m.reported(w.now, &r)
		}
		switch {
		case r.kind == reportEnd && w.mutant == mutantFreeAtEnd:
			for len(w.m.sess.given) > 0 {
				w.m.sess.unpin(w.m.sess.given[0])
			}
		case r.kind == reportClosed:
			w.s = nil
		}
	}
}

func (w *world) hearAnswer(r *report) {
	round, under := w.m.sess.round, w.m.sess.under
	if w.mutant == mutantProbe && r.o.Open.Empty() {
		for _, e := range w.m.sess.given {
			if e.out == r.b && e.kind == poison.Probed {
				e.suspect = nil
			}
		}
	}
	w.m.reported(w.now, r)
	if w.m.sess.under < under {
		w.vain = 0
	}
	if w.mutant == mutantRound && under == w.m.sess.under {
		w.m.sess.round = round
	}
}

// maySend reports whether the session can send its next batch.
func (w *world) maySend() bool {
	s := w.s
	return s != nil && len(s.work) > 0 && !s.opening && !s.unmade && !s.closed
}

// send performs the step of a life that calls Send.
func (w *world) send() {
	s := w.s
	h := s.work[0]
	s.work = s.work[1:]
	if !s.pass.admits(h.e) {
		s.post(report{kind: reportUnsent, e: h.e})
		return
	}
	if h.e.out != h.b || !slices.Equal(ticketsOf(h.b), h.tickets) || w.released[h.pin] {
		w.fail("a batch has changed before it was sent: %v", h.tickets)
	}
	if s.drain {
		w.fail("a Send begins after an answer with open records, before all batches are answered")
	}
	mode := s.next
	s.next = sends
	if mode == sendRefuses {
		s.post(report{kind: reportRefused, e: h.e, err: errors.New("leaving")})
		return
	}
	s.sent = append(s.sent, &h)
	switch mode {
	case sendAnswers:
		w.answer(len(s.sent)-1, batch.Outcome{})
	case sendAnswersNo:
		w.answer(len(s.sent)-1, wholly.outcome(h.b, w.lim.streams))
	}
	if mode != sends {
		s.post(report{kind: reportRefused, e: h.e, err: errors.New("leaving")})
	}
}

// arrive stores the first n batches of the session at the destination.
func (w *world) arrive(n int) {
	s := w.s
	for ; s.arrived < n; s.arrived++ {
		w.store(s.sent[s.arrived], batch.Set{}, batch.Set{})
	}
}

// store stores the records of h at the destination, except those in open and refused and those
// after an open record of the same stream.
func (w *world) store(h *handed, open, refused batch.Set) {
	for i, t := range h.tickets {
		if refused.Has(i) { // the destination may accept it if it is sent again
			w.suspects[t] = true
			continue
		}
		stream := w.stream(t)
		if open.Has(i) {
			w.s.broken |= 1 << stream
		}
		if w.s.broken&(1<<stream) != 0 {
			h.lost = append(h.lost, i)
			continue
		}
		if h.e.kind == poison.Reference {
			continue
		}
		if w.copies[t]++; w.copies[t] > 1 || w.suspects[t] {
			continue
		}
		if t < w.last[stream] {
			w.fail("the first copy of record %d arrives after that of %d", t, w.last[stream])
		}
		w.last[stream] = t
	}
}

// answer answers batch i with o. Records that the destination did not store are open in the answer.
func (w *world) answer(i int, o batch.Outcome) {
	s := w.s
	h := s.sent[i]
	s.next = sends
	if s.arrived <= i {
		w.arrive(i)
		w.store(h, o.Open, o.Refused)
		s.arrived = i + 1
	} else {
		for k, t := range h.tickets {
			if o.Open.Has(k) {
				s.broken |= 1 << w.stream(t)
			}
		}
	}
	if len(h.lost) > 0 {
		open := o.Open.Append(nil, len(h.tickets))
		open = append(open, h.lost...)
		slices.Sort(open)
		open = slices.DeleteFunc(slices.Compact(open), o.Refused.Has)
		o.Open = batch.Of(open...)
		if o.Why == nil {
			o.Why = errors.New("busy")
		}
	}
	h.answered = true
	if !o.Open.Empty() {
		s.drain = true
	}
	s.post(report{kind: reportAnswer, b: h.b, o: o})
	if s.unanswered() == 0 {
		s.drain, s.broken = false, 0
	}
}

// atPoison ends the session at batch i. If the world is mute, the session ends 30 s after the Send,
// and atPoison may only advance the time to the machine's next timer.
func (w *world) atPoison(i int) {
	if w.lim.mute {
		over := w.s.sent[i].e.at.Add(30 * time.Second)
		if at := w.m.wakeAt(w.now); !at.IsZero() && at.Before(over) {
			w.now = at
			return
		}
		if over.After(w.now) {
			w.now = over
		}
	}
	w.end(i, errors.New("reset"))
}

// poisonous reports whether batch h contains a record that ends the session.
func (w *world) poisonous(h *handed) bool {
	if w.lim.poison == 0 {
		return false
	}
	return h.e.kind != poison.Reference && slices.ContainsFunc(h.tickets, func(t uint64) bool { return t%uint64(w.lim.poison) == 0 })
}

// firstPoison returns the index of the oldest unanswered batch that ends the session, or the number
// of batches if there is none.
func (w *world) firstPoison() int {
	for i, h := range w.s.sent {
		if !h.answered && w.poisonous(h) {
			return i
		}
	}
	return len(w.s.sent)
}

// end ends the session with err after the first k batches have arrived.
func (w *world) end(k int, err error) {
	w.arrive(k)
	w.failures++
	w.s.post(report{kind: reportEnd, err: err})
}

func (w *world) openReturns(err error) {
	s := w.s
	s.opening = false
	s.post(report{kind: reportOpened, err: err})
	if err != nil {
		s.unmade, s.closed = true, true
		s.post(report{kind: reportClosed})
	}
}

func (w *world) closeReturns() {
	w.s.closed = true
	w.s.post(report{kind: reportClosed})
}

// ---- checks -----------------------------------------------------------------

// check verifies the invariants that must hold after every step.
func (w *world) check() {
	a := w.led.account()
	for _, l := range w.leases {
		if !l.released {
			a.Accepted += uint64(l.open)
			a.Pending.Inflight += uint64(l.open)
		}
	}
	if err := a.Check(); err != nil {
		w.fail("%v", err)
	}
	if a.Delivered > uint64(len(w.copies)) {
		w.fail("%d records are delivered, %d have arrived", a.Delivered, len(w.copies))
	}
	var open uint64
	for _, e := range w.m.queue.ring {
		if e.inMemory() {
			open += uint64(e.b.Len())
		}
	}
	if late := w.m.end.stage >= late && w.lim.keeps; !late && open != a.Pending.Inflight { // if Close is late, the log keeps some records
		w.fail("%d records are in memory, the account reports %d", open, a.Pending.Inflight)
	}
	for _, e := range w.m.queue.ring {
		if e.rest == parked && e.suspect != nil {
			w.suspects[e.b.First()] = true
		}
	}
	if s := w.s; s != nil && !s.closed {
		for i := range s.work {
			if p := s.pass; p.admits(s.work[i].e) {
				w.checkRead(&s.work[i])
			}
		}
		for _, h := range s.sent {
			if !h.answered {
				w.checkRead(h)
			}
		}
	}
	if e := w.offered; e != nil && (e.place == waiting || e.place == parked) {
		w.fail("the handler has %v, and the outlet has it, too", ticketsOf(e.b))
	}
	last := make([]uint64, w.lim.streams)
	for _, f := range w.frames {
		for _, t := range f.tickets {
			if w.suspects[t] {
				continue
			}
			s := w.stream(t)
			if t <= last[s] {
				w.fail("record %d comes after %d on disk", t, last[s])
			}
			last[s] = t
		}
	}
	if dup := w.duplicates(); dup > w.failures*w.lim.window*w.lim.records {
		w.fail("%d duplicates after %d failures", dup, w.failures)
	}
}

// checkRead verifies that the memory of h, which the session may still read, is unchanged.
func (w *world) checkRead(h *handed) {
	if w.released[h.pin] {
		w.fail("the session may still read batch %v, and its memory was freed", h.tickets)
	}
	if !slices.Equal(h.tickets, ticketsOf(h.b)) {
		w.fail("the session may still read batch %v, and its memory is used", h.tickets)
	}
}

func (w *world) duplicates() (n int) {
	for _, k := range w.copies {
		n += max(0, k-1)
	}
	return n
}

// atEnd verifies the invariants that must hold when the machine has ended.
func (w *world) atEnd() {
	a := w.led.account()
	if err := a.Check(); err != nil || a.Pending.Inflight != 0 {
		w.fail("at the end: %v: %s", err, a)
	}
	w.led.mu.Lock()
	unknown := w.led.unknown
	w.led.mu.Unlock()
	if unknown > a.Dropped[batch.Shutdown] {
		w.fail("%d unknown of %d dropped", unknown, a.Dropped[batch.Shutdown])
	}
}

// A worldLease is a lease of a log that may keep the records that are not settled.
type worldLease struct {
	w        *world
	b        *batch.Batch
	open     int
	released bool
}

func (l *worldLease) Batch() *batch.Batch { return l.b }
func (l *worldLease) Keeps() bool         { return l.w.lim.keeps }
func (l *worldLease) Pins() (int, int)    { return 1, 1000 }
func (l *worldLease) Open() int           { return l.open }

func (l *worldLease) Settle(n int) bool {
	if n > l.open {
		l.w.fail("%d records are settled, %d are open", n, l.open)
	}
	l.open -= n
	return true
}

func (l *worldLease) Release() {
	if l.released {
		l.w.fail("a lease is released twice")
	}
	if l.released = true; l.open > 0 && l.w.closed < 3 {
		l.w.fail("a lease with %d open records is released before Close is over", l.open)
	}
}

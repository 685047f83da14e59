package deliver

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/poison"
)

// A simFault is a kind of fault in a simulation. Each kind occurs a limited number of times.
type simFault uint8

const (
	ends        simFault = iota // a session ends with an error
	cleanEnds                   // a session ends without an error
	earlyEnds                   // a session ends before Open has returned
	opens                       // Open fails
	answers                     // an answer has open or refused records
	again                       // a batch is answered twice
	refusals                    // a Send returns an error
	badAppends                  // the spool cannot be written
	badReads                    // the spool cannot be read
	letterWaits                 // too many dead letters wait
	waits                       // time passes without a timer of the machine
	simFaults                   // number of the kinds above
)

// simLimits determines the size of a simulation and the faults that may occur in it.
type simLimits struct {
	batches, records, window int
	streams                  int // number of streams; records belong to them in turn, and order is kept within each
	may                      [simFaults]int
	answerKinds              []answerKind // possible kinds of answers; nil: only all open
	slow                     bool         // batches and reports arrive with a delay
	spool, handler           bool
	keeps                    bool       // the log keeps open records
	full                     bool       // the log is full at some point
	scarce                   bool       // the log is about to drop records at some point
	noRoom                   bool       // no memory for parked records
	poison                   int        // the session ends at each record whose ticket is a multiple of this; 0: no such records
	mute                     bool       // the session ends after 30 s without an answer, not at once
	suspectAnswer            answerKind // an answer that such a record sometimes gets; allOpen: none
	refusesReferences        bool       // the destination refuses reference records for a time
	age                      time.Duration
	transitions              *transitions                             // records the state transitions; may be nil
	jitter                   func(lo, hi time.Duration) time.Duration // nil: always hi
}

// An answerKind is a kind of answer with open or refused records.
type answerKind uint8

const (
	allOpen              answerKind = iota // all records are open
	allButFirstOpen                        // all records but the first are open
	oneStream                              // the records of one stream are open
	firstRefused                           // the first record is refused
	firstRefusedRestOpen                   // the first record is refused, the others are open
	smaller                                // all records are open, with the advice batch.Smaller
	searching                              // all records are open, with the advice batch.Search
	holding                                // all records are open, with the advice batch.Hold
	holdingStream                          // the records of one stream are open, with the advice batch.HoldStreams
	holdingAll                             // all records are open, with the advice batch.HoldStreams
	later                                  // all records are open, with a wait of one minute
	endedPermanently                       // all records are open, with the advice batch.Gone
	doubtful                               // all records are open, with the advice batch.Doubt
	serverError                            // all records are open, with the advice batch.ServerError
	answerKinds                            // number of the kinds above
)

func (f answerKind) outcome(b *batch.Batch, streams int) (o batch.Outcome) {
	o = batch.Outcome{Open: batch.All(), Why: errors.New("busy")}
	n := b.Len()
	switch f {
	case allButFirstOpen:
		o.Open = batch.From(min(1, n-1))
	case oneStream, holdingStream:
		var of []int
		for i, r := range b.All() {
			if r.Ticket%uint64(streams) == b.First()%uint64(streams) {
				of = append(of, i)
			}
		}
		o.Open = batch.Of(of...)
	case firstRefused:
		o = batch.Outcome{Refused: batch.Of(0), Refusal: errors.New("bad")}
	case firstRefusedRestOpen:
		o.Refused, o.Refusal, o.Open = batch.Of(0), errors.New("bad"), batch.From(1)
		if n == 1 {
			o.Open = batch.Set{}
		}
	case later:
		o.After = time.Minute
	}
	o.Advice = map[answerKind]batch.Advice{smaller: batch.Smaller, searching: batch.Search, holding: batch.Hold,
		holdingStream: batch.HoldStreams, holdingAll: batch.HoldStreams, endedPermanently: batch.Gone, doubtful: batch.Doubt, serverError: batch.ServerError}[f]
	return o
}

type frame struct {
	seq     uint64
	tickets []uint64
	out     bool
}

// A simulation contains the machine under test and simulates its environment: the log, the spool,
// the handler and the destination.
type simulation struct {
	lim    simLimits
	mutant mutant
	m      *machine
	led    *ledger
	now    time.Time

	fault        string
	noMoreFaults bool // no more faults occur
	used         [simFaults]int

	holders     []*holder // holders of the batches in the log
	frames      []frame   // batches in the spool that are not acknowledged
	seq         uint64
	acc         batch.Account // account of the spool
	badApp      bool          // the next Append fails
	badRead     bool          // the next call of Next fails
	lettersWait bool

	s *simSession

	offered   *entry
	suspects  map[uint64]bool // tickets of records that were parked or refused; they may arrive out of order
	copies    map[uint64]int
	last      map[uint64]uint64 // highest ticket whose first copy has arrived, by stream
	failures  int
	ended     bool
	closed    int // stage of Close: 1 begun, 2 late, 3 over, 4 abandoned
	released  map[*holder]bool
	leases    []*simLease
	wasFull   bool
	wasScarce bool
	kills     int
	futile    int // consecutive sessions that settled nothing, without a delay between them
	futileAt  time.Time
}

// A simSession is one session with its driver and destination.
type simSession struct {
	pass    sessionFilter
	opening bool // Open has not returned
	unmade  bool // Open has failed
	fenced  bool // the outlet has asked the session to close
	closed  bool // Close has returned
	work    []sentBatch
	sent    []*sentBatch // batches whose Send has begun, in order
	arrived int          // number of batches of sent that have arrived at the destination
	reports []report     // not yet read by the outlet
	broken  uint64       // bit set of streams with an open record; none of their later records is stored until all batches are answered
	drain   bool         // an answer had open records, and not all batches are answered
	next    sendMode     // result of the next Send
}

// A sentBatch is a batch that was given to a session.
type sentBatch struct {
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

func newSimulation(lim simLimits, mut mutant) *simulation {
	if lim.streams == 0 {
		lim.streams = 1
	}
	if lim.answerKinds == nil {
		lim.answerKinds = []answerKind{allOpen}
	}
	if lim.jitter == nil {
		lim.jitter = func(lo, hi time.Duration) time.Duration { return hi }
	}
	if lim.age == 0 {
		lim.age = -1
	}
	w := &simulation{
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
		w.led.spill, opt.spill = w, w
		w.led.readSpill(nil)
	}
	if lim.noRoom {
		opt.ParkedBytes = 0
	}
	w.m = newMachine(&settings{
		moved: lim.transitions.add, traits: &Traits{Window: lim.window}, opt: &opt, handler: lim.handler, jitter: lim.jitter,
		post: func(string, error, uint64) {}, deadLetter: func(*batch.Batch, error) {}, lettersFull: func() bool { return w.lettersWait },
		release: func(h *holder) { w.released[h] = true }, pending: func() uint64 { return w.led.account().Pending.Total() },
	}, w.led, newCircuit(*opt.Breaker, lim.jitter))
	w.settle()
	return w
}

func (w *simulation) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// ---- the spool --------------------------------------------------------------

var errSpool = errors.New("no space left")

func (w *simulation) Append(b *batch.Batch) (uint64, error) {
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

func (w *simulation) NextUpTo(int, int) (*batch.Batch, uint64, error) {
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

func (w *simulation) Ack(seq uint64) error {
	for len(w.frames) > 0 && w.frames[0].seq <= seq {
		if !w.frames[0].out {
			w.fail("batch %d of the spool is acknowledged, but was never read", w.frames[0].seq)
		}
		for _, e := range w.m.sess.given { // the spool reuses the memory of the batch
			if e.pin != nil && e.pin.owner == ofSpool && e.pin.seq == w.frames[0].seq {
				w.fail("batch %d of the spool is acknowledged while the session may read it", e.pin.seq)
			}
		}
		w.frames = w.frames[1:]
	}
	return nil
}

func (w *simulation) Account() batch.Account { return w.acc }

func (w *simulation) stream(ticket uint64) uint64 { return ticket % uint64(w.lim.streams) }

func (w *simulation) batchOf(tickets []uint64) *batch.Batch {
	var b batch.Batch
	for _, t := range tickets {
		b.Append([]byte{byte(t), '\n'}, t, batch.Meta{Stream: uint32(w.stream(t))})
	}
	return &b
}

// ---- actions of the machine -------------------------------------------------

// settle executes the actions of the machine until the machine waits.
func (w *simulation) settle() {
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
	w.fail("the machine does not stop executing actions")
}

// flow sends all waiting batches and passes all reports to the machine.
func (w *simulation) flow() {
	for w.s != nil && (w.maySend() || len(w.s.reports) > 0) {
		if w.maySend() {
			w.send()
		} else {
			w.passReports(1)
		}
	}
}

func (w *simulation) do(a action) {
	s := w.s
	switch a.do {
	case doOpen:
		if s != nil && !s.closed {
			w.fail("a second session is opened")
		}
		w.s = &simSession{opening: true}
		if w.futile++; w.futileAt != w.now {
			w.futile, w.futileAt = 0, w.now
		}
		if w.futile > 20 {
			w.fail("sessions are opened without a pause")
		}
	case doSend:
		switch {
		case s == nil || s.fenced || s.unmade:
			w.fail("a batch is given, but there is no session")
			return
		case len(s.work) > w.lim.window:
			w.fail("the session has no room for another batch, so the outlet would wait")
		case a.e.place != sent || a.e.b.Len() == 0:
			w.fail("an entry is given that is not a batch to send")
		}
		s.work = append(s.work, sentBatch{e: a.e, b: a.e.out, tickets: ticketsOf(a.e.out), pin: a.e.pin})
		if n := len(s.work) + s.unanswered(); !w.lim.slow && n > w.lim.window {
			w.fail("%d batches are in flight, the window is %d", n, w.lim.window)
		}
	case doClose:
		if s == nil {
			w.fail("a session is closed, but there is none")
			return
		}
		s.fenced, s.pass.over = true, true
	case doSpill:
		e := a.e
		if w.mutant == mutantSpillBehind {
			for _, o := range w.m.queue.ring {
				if o.inMemory() && o.place == waiting && !o.parked {
					e = o
					break
				}
			}
		}
		w.m.disk.append(w.now, e)
	case doPull:
		w.m.disk.pull(w.now)
	case doAcknowledge:
		w.m.disk.acknowledge()
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

func (s *simSession) unanswered() (n int) {
	for _, h := range s.sent {
		if !h.answered {
			n++
		}
	}
	return n
}

// alive reports whether the driver may still answer or end the session.
func (s *simSession) alive() bool { return !s.pass.over && !s.unmade }

// post passes r to the outlet like life.post, unless the session has ended.
func (s *simSession) post(r report) {
	if s.pass.counts(&r) {
		s.reports = append(s.reports, r)
	}
}

// passReports passes the n oldest reports to the machine.
func (w *simulation) passReports(n int) {
	s := w.s
	for range n {
		if len(s.reports) == 0 || w.s != s {
			return
		}
		r := s.reports[0]
		s.reports = s.reports[1:]
		switch {
		case r.kind == reportAnswer:
			w.passAnswer(&r)
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

func (w *simulation) passAnswer(r *report) {
	round, under := w.m.sess.round, w.m.sess.awaited
	if w.mutant == mutantProbe && r.o.Open.Empty() {
		for _, e := range w.m.sess.given {
			if e.out == r.b && e.kind == poison.Probed {
				e.suspect = nil
			}
		}
	}
	w.m.reported(w.now, r)
	if w.m.sess.awaited < under {
		w.futile = 0
	}
	if w.mutant == mutantRound && under == w.m.sess.awaited {
		w.m.sess.round = round
	}
}

// maySend reports whether the session can send its next batch.
func (w *simulation) maySend() bool {
	s := w.s
	return s != nil && len(s.work) > 0 && !s.opening && !s.unmade && !s.closed
}

// send performs the step of life.run that calls Send for the next batch.
func (w *simulation) send() {
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
		w.answer(len(s.sent)-1, allOpen.outcome(h.b, w.lim.streams))
	}
	if mode != sends {
		s.post(report{kind: reportRefused, e: h.e, err: errors.New("leaving")})
	}
}

// arrive stores the first n batches of the session at the destination.
func (w *simulation) arrive(n int) {
	s := w.s
	for ; s.arrived < n; s.arrived++ {
		w.store(s.sent[s.arrived], batch.Set{}, batch.Set{})
	}
}

// store stores the records of h at the destination, except those in the sets open and refused, and
// those after an open record of the same stream.
func (w *simulation) store(h *sentBatch, open, refused batch.Set) {
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

// answer answers batch i with o. Records that the destination did not store are open in the answer,
// even if o settles them.
func (w *simulation) answer(i int, o batch.Outcome) {
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

// atPoison ends the session at batch i. If mute is set, the session ends 30 s after the Send;
// before that, atPoison only advances the time to the next timer of the machine.
func (w *simulation) atPoison(i int) {
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
func (w *simulation) poisonous(h *sentBatch) bool {
	if w.lim.poison == 0 {
		return false
	}
	return h.e.kind != poison.Reference && slices.ContainsFunc(h.tickets, func(t uint64) bool { return t%uint64(w.lim.poison) == 0 })
}

// firstPoison returns the index of the oldest unanswered batch that ends the session, or the number
// of batches if there is none.
func (w *simulation) firstPoison() int {
	for i, h := range w.s.sent {
		if !h.answered && w.poisonous(h) {
			return i
		}
	}
	return len(w.s.sent)
}

// end ends the session with err after the first k batches have arrived.
func (w *simulation) end(k int, err error) {
	w.arrive(k)
	w.failures++
	w.s.post(report{kind: reportEnd, err: err})
}

func (w *simulation) openReturns(err error) {
	s := w.s
	s.opening = false
	s.post(report{kind: reportOpened, err: err})
	if err != nil {
		s.unmade, s.closed = true, true
		s.post(report{kind: reportClosed})
	}
}

func (w *simulation) closeReturns() {
	w.s.closed = true
	w.s.post(report{kind: reportClosed})
}

// ---- checks -----------------------------------------------------------------

// check verifies the invariants that must hold after every step.
func (w *simulation) check() {
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
		if e.parked && e.suspect != nil {
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
	if e := w.offered; e != nil && e.place == waiting {
		w.fail("both the handler and the outlet own batch %v", ticketsOf(e.b))
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
func (w *simulation) checkRead(h *sentBatch) {
	if w.released[h.pin] {
		w.fail("the session may still read batch %v, but its memory was released", h.tickets)
	}
	if !slices.Equal(h.tickets, ticketsOf(h.b)) {
		w.fail("the session may still read batch %v, but its memory is used again", h.tickets)
	}
}

func (w *simulation) duplicates() (n int) {
	for _, k := range w.copies {
		n += max(0, k-1)
	}
	return n
}

// atEnd verifies the invariants that must hold when the machine has ended.
func (w *simulation) atEnd() {
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

// A simLease is a lease of the simulated log. If the log is crash-safe, the lease keeps the records
// that are not settled.
type simLease struct {
	w        *simulation
	b        *batch.Batch
	open     int
	released bool
}

func (l *simLease) Batch() *batch.Batch { return l.b }
func (l *simLease) Keeps() bool         { return l.w.lim.keeps }
func (l *simLease) Pins() (int, int)    { return 1, 1000 }

func (l *simLease) Settle(n int) bool {
	if n > l.open {
		l.w.fail("%d records are settled, %d are open", n, l.open)
	}
	l.open -= n
	return true
}

func (l *simLease) Release() {
	if l.released {
		l.w.fail("a lease is released twice")
	}
	if l.released = true; l.open > 0 && l.w.closed < 3 {
		l.w.fail("a lease with %d open records is released before Close is over", l.open)
	}
}

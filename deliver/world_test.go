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

// A trouble is a kind of thing that goes wrong in a world, so many times at most.
type trouble uint8

const (
	ends        trouble = iota // a session ends because of an error
	cleanEnds                  // … of none
	earlyEnds                  // … and Open has not returned
	opens                      // Open fails
	answers                    // an answer with open or refused records
	again                      // a second answer to a batch
	refusals                   // a Send returns an error
	badAppends                 // the spool cannot be written
	badReads                   // … read
	letterWaits                // too many dead letters wait
	waits                      // time passes, and the machine has no use for it
	troubles
)

// worldLimits bounds a world.
type worldLimits struct {
	batches, records, window int
	streams                  int // of the records, in turns; order is kept in each
	may                      [troubles]int
	flavours                 []flavour // of answers; none: wholly open
	slow                     bool      // batches and reports wait on their way
	spool, handler           bool
	keeps                    bool    // the log keeps open records
	full                     bool    // the log is full at some point
	scarce                   bool    // … or about to drop records
	noRoom                   bool    // nothing that is parked gets memory
	poison                   int     // every so many records one ends its session; 0: none does
	mute                     bool    // … after 30 s without an answer
	suspectAnswer            flavour // the answer to such a record at times; wholly: none
	sour                     bool    // reference records are refused for a time
	age                      time.Duration
	moves                    *moves                                   // where they are noted; nil: nowhere
	jitter                   func(lo, hi time.Duration) time.Duration // nil: hi
}

// A flavour is an answer with open or refused records.
type flavour uint8

const (
	wholly      flavour = iota // all is open
	partly                     // … but the first record
	oneStream                  // the records of one stream are open
	refusingOne                // the first record is refused
	mixedUp                    // the first record is refused, the others are open
	smaller
	searching
	holding
	holdingStream // the stream of the first record
	holdingAll    // all streams
	later         // after a minute
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

// world is the machine and everything around it.
type world struct {
	lim    worldLimits
	mutant mutant
	m      *machine
	led    *ledger
	now    time.Time

	spooling *spooling
	fault    string
	kind     bool // all goes well from now on
	used     [troubles]int

	holders     []*holder // of callers
	frames      []frame   // of the spool, not acknowledged
	seq         uint64
	acc         batch.Account // of the spool
	badApp      bool          // the next Append fails
	badRead     bool          // the next Next does
	lettersWait bool

	s *worldSession

	offered   *entry
	suspects  map[uint64]bool // were parked: the stated exception to the order
	copies    map[uint64]int
	last      map[uint64]uint64 // the newest first copy, by stream
	failures  int
	ended     bool
	closed    int // how far Close has come
	released  map[*holder]bool
	leases    []*worldLease
	wasFull   bool
	wasScarce bool
	kills     int
	vain      int // sessions in a row that settled nothing, and no time has passed
	vainAt    time.Time
}

// worldSession is one session: a life, its driver and the destination.
type worldSession struct {
	pass    passage
	opening bool // Open has not returned
	unmade  bool // it has failed
	fenced  bool // the outlet wants its end
	closed  bool // Close has returned
	work    []handed
	sent    []*handed // Send has begun, in order
	arrived int       // of sent, at the destination
	reports []report  // not heard
	broken  uint64    // streams with an open record: nothing more of them is stored before all is answered
	drain   bool      // an answer had open records, and not all is answered
	next    sendMode  // of the next Send
}

// handed is a batch that a session was given.
type handed struct {
	e        *entry
	b        *batch.Batch
	tickets  []uint64
	pin      *holder
	answered bool
	lost     []int // records that the destination did not store
}

// sendMode is the result of the next Send.
type sendMode uint8

const (
	sends         sendMode = iota
	sendRefuses            // it returns an error
	sendAnswers            // it answers, and returns an error
	sendAnswersNo          // it answers that all is open, and returns an error
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
		w.led.look()
	}
	if lim.noRoom {
		opt.AsideBytes = 0
	}
	w.m = newMachine(&settings{
		moved: lim.moves.add, traits: &Traits{Window: lim.window}, opt: &opt, handler: lim.handler, jitter: lim.jitter,
		post: func(string, error, uint64) {}, deadLetter: func(*batch.Batch, error) {}, lettersFull: func() bool { return w.lettersWait },
		settled: w.led.forget, release: func(h *holder) { w.released[h] = true }, pending: func() uint64 { return 0 },
	}, w.led, newCircuit(*opt.Breaker, lim.jitter))
	w.spooling = &spooling{spill: w, m: w.m, flushes: &flushes{m: w.m}}
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
			return w.batchOf(f.tickets), f.seq, nil
		}
	}
	return nil, 0, io.EOF
}

func (w *world) Ack(seq uint64) error {
	for len(w.frames) > 0 && w.frames[0].seq <= seq {
		if !w.frames[0].out {
			w.fail("batch %d of the spool is acknowledged, and was not handed out", w.frames[0].seq)
		}
		for _, e := range w.m.sess.given { // the spool uses the memory of the batch again
			if e.pin != nil && e.pin.custody == ofSpool && e.pin.seq == w.frames[0].seq {
				w.fail("batch %d of the spool is acknowledged, and the session may read it", e.pin.seq)
			}
		}
		n := uint64(len(w.frames[0].tickets))
		w.acc.Delivered += n
		w.acc.Pending.Spill -= n
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

// ---- what the machine wants -------------------------------------------------

// settle carries out actions until the machine waits.
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

// flow lets everything through that waits on its way.
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
			w.fail("there is no room to hand over a batch: the outlet would wait")
		case a.e.place != sent || a.e.b.Len() == 0 && !a.e.orphan:
			w.fail("what is given is no batch")
		}
		s.work = append(s.work, handed{e: a.e, b: a.e.out, tickets: ticketsOf(a.e.out), pin: a.e.pin})
		if n := len(s.work) + s.unanswered(); !w.lim.slow && n > w.lim.window {
			w.fail("%d batches are in flight, the window is %d", n, w.lim.window)
		}
	case doClose:
		if s == nil {
			w.m.sess.closed() // as outlet.do
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

// alive reports whether the driver may still answer and end.
func (s *worldSession) alive() bool { return !s.pass.over && !s.unmade }

// post is life.post.
func (s *worldSession) post(r report) {
	if s.pass.counts(&r) {
		s.reports = append(s.reports, r)
	}
}

// hear has the outlet hear the n oldest reports.
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

// maySend reports whether the session takes the next batch.
func (w *world) maySend() bool {
	s := w.s
	return s != nil && len(s.work) > 0 && !s.opening && !s.unmade && !s.closed
}

// send is the step of a life that calls Send.
func (w *world) send() {
	s := w.s
	h := s.work[0]
	s.work = s.work[1:]
	if !s.pass.admits(h.e) {
		s.post(report{kind: reportUnsent, e: h.e})
		return
	}
	if h.e.out != h.b || !slices.Equal(ticketsOf(h.b), h.tickets) || w.released[h.pin] {
		w.fail("what is sent has changed on its way: %v", h.tickets)
	}
	if s.drain {
		w.fail("a Send begins behind an answer with open records, before all is answered")
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

// arrive notes that the first n batches of the session are at the destination.
func (w *world) arrive(n int) {
	s := w.s
	for ; s.arrived < n; s.arrived++ {
		w.store(s.sent[s.arrived], batch.Set{}, batch.Set{})
	}
}

// store has the destination store what it takes of h: nothing of open and refused, and
// nothing behind an open record of the same stream.
func (w *world) store(h *handed, open, refused batch.Set) {
	for i, t := range h.tickets {
		if refused.Has(i) { // if it comes again, this destination may take it
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

// answer has the driver answer batch i with o, and what it did not store as open.
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

// atPoison has the session end at batch i, if it is time for that, and else time pass.
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

// poisonous reports whether a session ends at h.
func (w *world) poisonous(h *handed) bool {
	if w.lim.poison == 0 {
		return false
	}
	return h.e.kind != poison.Reference && slices.ContainsFunc(h.tickets, func(t uint64) bool { return t%uint64(w.lim.poison) == 0 })
}

// firstPoison returns the index of the oldest batch without an answer that ends the
// session, the number of batches where there is none.
func (w *world) firstPoison() int {
	for i, h := range w.s.sent {
		if !h.answered && w.poisonous(h) {
			return i
		}
	}
	return len(w.s.sent)
}

// end has the driver end the session. The first k batches have arrived.
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

// check looks at everything that must hold at any moment.
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
	if late := w.m.end.stage >= late && w.lim.keeps; !late && open != a.Pending.Inflight { // late, the log keeps some
		w.fail("%d records are in memory, the account says %d", open, a.Pending.Inflight)
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
				w.fail("record %d is behind %d on disk", t, last[s])
			}
			last[s] = t
		}
	}
	if dup := w.duplicates(); dup > w.failures*w.lim.window*w.lim.records {
		w.fail("%d duplicates after %d failures", dup, w.failures)
	}
}

// checkRead: the session may read h.
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

// atEnd checks what must hold when the machine has ended.
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

// A worldLease is of a log that keeps the records that are not settled, or not.
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
		l.w.fail("a lease with %d open records is released, and there is time", l.open)
	}
}

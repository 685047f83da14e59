package deliver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/poison"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// The exploration visits the states of a simulation in every order of events. A simulation is
// small: a few batches, a window of two, sessions that answer, refuse, end or hang, a spool, a
// handler, and a Close at any point. It runs the machine of the package, not a model of it. After
// each event it executes the actions of the machine until the machine waits, and checks all
// invariants. States that were visited before are not visited again.
//
// From a sample of the states, the simulation continues without further faults. Then all records
// must be settled within a bounded time.

// A mutant is a deliberate defect of the simulation, which the checks must detect.
type mutant uint8

const (
	noMutant mutant = iota
	// mutantNoFence passes answers to the machine after their session has ended.
	mutantNoFence
	// mutantFreeAtEnd frees the memory of a session when it ends, although the session may read
	// that memory until it has closed.
	mutantFreeAtEnd
	// mutantSpillBehind moves waiting batches to the spool before the older batches in flight.
	mutantSpillBehind
	// mutantEarlyEnd hides the end of a session that ends before its Open has returned.
	mutantEarlyEnd
	// mutantRound does not count the round (see sessionFilter) that an ignored answer begins.
	mutantRound
	// mutantProbe does not end the probe when the probed record is accepted.
	mutantProbe
)

// events returns the events that are possible now.
func (w *simulation) events() (out []event) {
	add := func(name string, do func()) { out = append(out, event{name, 0, do}) }
	addAt := func(name string, i int, do func()) { out = append(out, event{name, i, do}) }
	// addFault adds an event that is a fault, unless faults of that kind have reached their limit
	// in w.lim.
	addFault := func(of simFault, name string, i int, do func()) {
		if w.used[of] < w.lim.may[of] {
			addAt(name, i, func() { w.used[of]++; w.failures++; do() })
		}
	}
	if len(w.holders) < w.lim.batches && w.closed == 0 {
		add("batch", w.addBatch)
	}
	if w.s != nil {
		w.sessionEvents(add, addAt, addFault)
	}
	if e := w.offered; e != nil {
		answer := func(o batch.Outcome) func() {
			return func() { w.offered = nil; w.m.handled(w.now, e, o) }
		}
		no := errors.New("no")
		add("handled", answer(batch.Outcome{}))
		add("not handled", answer(batch.FailedOutcome(no)))
		if n := e.b.Len(); n > 1 && e.place == offered {
			addFault(answers, "handled partly", 0, answer(batch.Outcome{Open: batch.From(n - 1), Why: no}))
			addFault(answers, "handler rejects", 0, answer(batch.Outcome{Refused: batch.Of(0), Refusal: no}))
		}
	}
	if w.lim.spool {
		if !w.badApp {
			addFault(badAppends, "spool cannot append", 0, func() { w.badApp = true })
		}
		if !w.badRead {
			addFault(badReads, "spool cannot read", 0, func() { w.badRead = true })
		}
	}
	if w.lettersWait {
		add("letters written", func() { w.lettersWait = false })
	} else {
		addFault(letterWaits, "letters wait", 0, func() { w.lettersWait = true })
	}
	if w.lim.scarce && !w.wasScarce {
		add("scarce", func() {
			w.wasScarce = true
			w.m.handler.needs.drops = true
			w.settle()
			w.m.handler.needs.drops = false
		})
	}
	if w.lim.full && !w.wasFull {
		add("full", func() { w.wasFull = true; w.m.full = true; w.settle(); w.m.full = false })
	}
	at := w.m.wakeAt(w.now)
	if !at.IsZero() {
		add("time", func() { w.now = at })
	}
	addFault(waits, "later", 0, func() { w.now = w.now.Add(w.lim.jitter(0, 3*time.Second)) })
	over := func() { w.closed = 3; w.m.beOver(w.now.Add(time.Hour)) }
	switch w.closed {
	case 0:
		add("close", func() { w.closed = 1; w.m.allLeased(); w.m.endBy(w.now, w.now.Add(1e5*time.Hour)) })
	case 1:
		if w.lim.spool || w.lim.handler {
			add("late", func() { w.closed = 2; w.m.beLate() })
		} else { // the destination has all the time
			add("over", over)
		}
	case 2:
		add("over", over)
	case 3:
		if w.s != nil || w.offered != nil {
			add("abandon", func() { w.closed = 4; w.m.beOver(w.now) })
		}
	}
	return out
}

// sessionEvents adds the events that the session can cause.
func (w *simulation) sessionEvents(add func(string, func()), addAt func(string, int, func()), addFault func(simFault, string, int, func())) {
	s := w.s
	if len(s.reports) > 0 {
		add("read report", func() { w.passReports(1) })
		if len(s.reports) > 1 {
			add("read reports", func() { w.passReports(len(s.reports)) })
		}
	}
	if w.lim.slow && w.maySend() {
		add("send", w.send)
	}
	if s.opening {
		add("opened", func() { w.openReturns(nil) })
		addFault(opens, "open fails", 0, func() { w.openReturns(errors.New("refused")) })
		if s.alive() {
			addFault(earlyEnds, "end in open", 0, func() { w.end(0, errors.New("reset")) })
			addFault(cleanEnds, "clean end in open", 0, func() { w.end(0, nil) })
		}
		return
	}
	if s.fenced && !s.closed {
		add("closed", w.closeReturns)
	}
	if !s.alive() {
		if w.mutant == mutantNoFence {
			for i, h := range s.sent {
				if !h.answered {
					addAt("late answer", i, func() { w.lateAnswer(h) })
				}
			}
		}
		return
	}
	if s.next == sends && !s.pass.refuses {
		addFault(refusals, "next Send refuses", 0, func() { s.next = sendRefuses })
		addFault(refusals, "next Send answers and refuses", 0, func() { s.next = sendAnswers })
		if len(w.lim.answerKinds) > 1 {
			addFault(refusals, "next Send answers open and refuses", 0, func() { s.next = sendAnswersNo })
		}
	}
	last := w.firstPoison()
	for i, h := range s.sent {
		if h.answered {
			addFault(again, "answer again", i, func() { s.post(report{kind: reportAnswer, b: h.b}) })
			addFault(again, "answer open again", i, func() {
				s.post(report{kind: reportAnswer, b: h.b, o: allOpen.outcome(h.b, w.lim.streams)})
				s.drain = s.unanswered() > 0
			})
			continue
		}
		if i >= last {
			break
		}
		addAt("answer", i, func() { w.answer(i, batch.Outcome{}) })
		for _, f := range w.lim.answerKinds {
			addFault(answers, answerTo[f], i, func() { w.answer(i, f.outcome(h.b, w.lim.streams)) })
		}
	}
	if last < len(s.sent) {
		addAt("end of poison with", last, func() { w.atPoison(last) })
	}
	if len(s.sent) > 0 {
		for k := s.arrived; k <= last; k++ {
			addFault(ends, "end with", k, func() { w.end(k, errors.New("reset")) })
		}
	}
	for k := s.arrived; k <= last; k++ {
		addFault(cleanEnds, "clean end with", k, func() { w.end(k, nil) })
	}
}

// answerTo contains the names of answer events, by answerKind.
var answerTo = func() (names [answerKinds]string) {
	for f := range names {
		names[f] = fmt.Sprintf("answer %d to", f)
	}
	return names
}()

type event struct {
	name string
	at   int // index of the batch
	do   func()
}

func (e event) String() string { return fmt.Sprint(e.name, " ", e.at) }

func (w *simulation) addBatch() {
	no := len(w.holders)
	var tickets []uint64
	for i := range w.lim.records {
		tickets = append(tickets, uint64(no*w.lim.records+i+1))
	}
	b := w.batchOf(tickets)
	l := &simLease{w: w, b: b, open: w.lim.records}
	w.leases = append(w.leases, l)
	w.holders = append(w.holders, w.m.add(w.now, l, uint64(no+1)).h)
}

// lateAnswer delivers an answer of a session that has ended.
func (w *simulation) lateAnswer(h *sentBatch) {
	h.answered = true
	if h.e.place == waiting && !h.e.parked {
		h.e.place = sent
		w.m.sess.awaited++
	}
	w.m.answer(w.now, h.b, batch.Outcome{})
}

// ---- progress ---------------------------------------------------------------

// runWithoutFaults continues without further faults and checks that all records are settled within
// a day, or later if many poisonous records delay them. If stubborn is true, poisonous records
// still end sessions.
func (w *simulation) runWithoutFaults(stubborn bool) {
	w.noMoreFaults, w.badApp, w.badRead, w.lettersWait = true, false, false, false
	if !stubborn {
		w.lim.poison = 0
	}
	if w.lim.suspectAnswer == holdingStream {
		w.lim.suspectAnswer = allOpen
	}
	day := 24 * time.Hour
	if w.lim.noRoom && w.lim.poison > 0 { // the outlet tries each poisonous record at the head of the queue for an hour
		day += time.Duration(w.lim.batches*w.lim.records/w.lim.poison) * 2 * maxHold
	}
	until := w.now.Add(day)
	most := 1000 + 100*w.lim.batches*w.lim.records
	if stubborn { // each poisonous record ends dozens of sessions
		most *= 100
	}
	if w.s != nil {
		w.s.next = sends
	}
	w.settle()
	for range most {
		if w.fault != "" {
			return
		}
		if w.ended {
			w.atEnd()
			return
		}
		if !w.step() {
			at := w.m.wakeAt(w.now)
			switch {
			case at.IsZero():
				w.checkIdle()
				return
			case stubborn && w.m.poison.References() == 0 && w.firstIsPoisonous():
				return // no reference record exists that could show that the destination works
			case at.After(until) && w.onlyUntestedStreams():
				return
			case at.After(until):
				w.fail("without faults, not all records are settled after a day: %s", w.left())
				return
			}
			w.now = at
		}
		w.settle()
	}
	if !w.onlyUntestedStreams() {
		w.fail("without faults, Close does not end: %s", w.left())
	}
}

// firstIsPoisonous reports whether the first record in the queue is poisonous.
func (w *simulation) firstIsPoisonous() bool {
	e := w.m.queue.first(w.m.disk.backlog)
	return e != nil && w.lim.poison > 0 && e.b.First()%uint64(w.lim.poison) == 0
}

// onlyUntestedStreams reports whether each remaining record belongs to a stream of which a record
// is suspected and none was accepted. The outlet cannot tell such a stream from one that the
// destination does not accept at the moment (ADR 47).
func (w *simulation) onlyUntestedStreams() bool {
	suspected := map[uint32]bool{}
	for _, e := range w.m.queue.ring {
		if e.parked && e.suspect != nil {
			suspected[e.stream()] = true
		}
	}
	for t := range w.copies {
		delete(suspected, uint32(w.stream(t)))
	}
	for _, e := range w.m.queue.ring {
		for _, rec := range e.b.All() {
			if !suspected[rec.Stream] {
				return false
			}
		}
	}
	return len(suspected) > 0
}

// step performs one event that is not a fault. It returns false if the machine only waits for a
// timer.
func (w *simulation) step() bool {
	if e := w.offered; e != nil {
		w.offered = nil
		w.m.handled(w.now, e, batch.Outcome{})
		return true
	}
	s := w.s
	switch {
	case s == nil:
		return false
	case s.opening:
		w.openReturns(nil)
	case len(s.reports) > 0:
		w.passReports(len(s.reports))
	case w.maySend():
		w.send()
	case s.fenced && !s.closed:
		w.closeReturns()
	case s.alive() && s.unanswered() > 0:
		i := slices.IndexFunc(s.sent, func(h *sentBatch) bool { return !h.answered })
		h := s.sent[i]
		switch {
		case i == w.firstPoison():
			if w.kills++; w.lim.suspectAnswer >= doubtful || w.lim.suspectAnswer != allOpen && w.kills%16 == 0 {
				w.answer(i, w.lim.suspectAnswer.outcome(h.b, w.lim.streams))
			} else {
				w.atPoison(i)
			}
		case h.e.kind == poison.Reference && w.lim.refusesReferences && !w.noMoreFaults:
			w.answer(i, firstRefused.outcome(h.b, w.lim.streams))
		default:
			w.answer(i, batch.Outcome{})
		}
	default:
		return false
	}
	return true
}

// stepsWithoutFaults performs up to n events that are not faults.
func (w *simulation) stepsWithoutFaults(n int) {
	for range n {
		if w.fault != "" || w.ended {
			return
		}
		if !w.step() {
			at := w.m.wakeAt(w.now)
			if at.IsZero() {
				return
			}
			w.now = at
		}
		w.settle()
	}
}

// checkIdle checks the state when no event and no timer remains: all records must be settled.
func (w *simulation) checkIdle() {
	m := w.m
	if len(m.queue.ring)+len(m.disk.out)+len(m.sess.given)+len(w.frames)+m.sess.awaited > 0 || m.poison.Phase() != poison.Usual || m.handler.busy || m.disk.inUse.on {
		w.fail("the machine waits, but no event or timer remains: %s", w.left())
	}
	for i, h := range w.holders {
		if !w.released[h] {
			w.fail("the memory of batch %d is not released", i)
		}
	}
	if m.end.stage != running {
		w.fail("Close waits, but no event or timer remains")
	}
}

func (w *simulation) left() string {
	m := w.m
	return fmt.Sprintf("%d in the queue, %d batches of the spool handed out, %d batches given, %d in the spool, session %d, %d in flight, phase %d, circuit %d",
		len(m.queue.ring), len(m.disk.out), len(m.sess.given), len(w.frames), m.sess.state, m.sess.awaited, m.poison.Phase(), m.brk.state())
}

// ---- all states -------------------------------------------------------------

// few limits a counter of consecutive failures to 12. A higher count makes no difference, because
// delays and the number of suspects of a held stream stop growing before. Without the limit a
// silent destination would make the number of states infinite.
func few(n int) uint64 { return uint64(min(n, 12)) }

// hashState passes the contents of v to the function n: each number, whether each time is in the
// future, and whether each pointer to a batch is set.
func hashState(v reflect.Value, now time.Time, n func(...uint64)) {
	switch v.Kind() {
	case reflect.Pointer:
		set := uint64(0)
		if !v.IsNil() {
			set = 1
		}
		if n(set); set == 1 && v.Type() != reflect.TypeFor[*batch.Batch]() {
			hashState(v.Elem(), now, n)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() { // seconds since the year 1, without a monotonic clock
			at := time.Time{}.Add(0).Unix() + v.FieldByName("ext").Int()
			hashState(reflect.ValueOf(time.Unix(at, int64(v.FieldByName("wall").Uint())).After(now)), now, n)
			return
		}
		for i := range v.NumField() {
			hashState(v.Field(i), now, n)
		}
	case reflect.Slice:
		n(uint64(v.Len()))
		for i := range v.Len() {
			hashState(v.Index(i), now, n)
		}
	case reflect.Bool:
		if v.Bool() {
			n(1)
		} else {
			n(0)
		}
	case reflect.Int:
		n(few(int(v.Int())))
	case reflect.Int64:
		n(uint64(v.Int()))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		n(v.Uint())
	}
}

// key returns a hash of the state of the simulation.
func (w *simulation) key() uint64 {
	var h maphash.Hash
	h.SetSeed(keySeed)
	var buf [8]byte
	n := func(v ...uint64) {
		for _, x := range v {
			binary.LittleEndian.PutUint64(buf[:], x)
			h.Write(buf[:])
		}
	}
	is := func(v ...bool) {
		for _, x := range v {
			if x {
				h.WriteByte(1)
			} else {
				h.WriteByte(0)
			}
		}
	}
	later := func(t ...time.Time) {
		for _, x := range t {
			is(x.After(w.now))
		}
	}
	m := w.m
	n(uint64(len(m.queue.ring)))
	for _, e := range m.queue.ring {
		n(e.b.First(), uint64(e.b.Len()), uint64(e.place), e.h.seq)
		is(e.parked, e.pin != nil, e.unknown, e.tried, e.out != nil && e.out == e.b, e.suspect != nil, e.copied)
	}
	hashState(reflect.ValueOf(m.poison).Elem(), w.now, n)
	for _, d := range m.disk.out {
		n(d.seq, uint64(d.parts), uint64(d.pins))
	}
	for _, s := range slices.Sorted(maps.Keys(m.streams.held)) {
		n(uint64(s), few(m.streams.held[s].times))
		is(m.streams.held[s].tried)
		later(m.streams.held[s].until)
	}
	n(uint64(m.end.stage), uint64(m.sess.state), uint64(m.sess.awaited), uint64(m.brk.state()), few(m.health.failures), m.handler.due, few(int(m.brk.trips)), few(m.brk.Consecutive()), uint64(m.health.bound))
	is(m.health.hurried, m.end.last, m.sess.regroup, m.sess.answered, m.disk.backlog, m.full, m.handler.needs.drops, m.handler.relieves, m.handler.busy)
	later(m.health.notBefore, m.disk.appendAt, m.disk.pullAt, m.handler.at, m.brk.Until(), m.silentFrom())
	n(uint64(len(w.holders)), uint64(w.closed))
	for _, k := range w.used {
		n(uint64(k))
	}
	is(w.offered != nil, w.wasFull, w.wasScarce, w.badApp, w.badRead, w.lettersWait)
	for _, h := range w.holders {
		is(w.released[h])
	}
	if s := w.s; s != nil {
		n(m.sess.round-s.pass.void, s.pass.round-s.pass.void, uint64(s.arrived), s.broken, uint64(s.next))
		is(s.opening, s.unmade, s.fenced, s.closed, s.drain, s.pass.over, s.pass.refuses)
		for _, h := range s.work {
			n(h.tickets...)
			is(h.e.round <= s.pass.void)
		}
		for _, h := range s.sent {
			n(h.tickets...)
			is(h.answered, len(h.lost) > 0)
		}
		for _, r := range s.reports {
			n(uint64(r.kind), uint64(r.o.Advice))
			if r.b != nil {
				n(r.b.First())
			}
			is(r.o.Open.Empty(), r.o.Refused.Empty(), r.err == nil)
		}
	}
	for _, f := range w.frames {
		n(f.seq, uint64(len(f.tickets)))
		n(f.tickets...)
		is(f.out)
	}
	for t := range uint64(w.lim.batches * w.lim.records) {
		n(uint64(w.copies[t+1]))
	}
	return h.Sum64()
}

// progressEvery is the number of states between two calls of runWithoutFaults.
const progressEvery = 3

// explore visits at most budget states of a simulation. It returns their number and the first
// fault, with the events that lead to the fault. If pick is nil, it visits all states depth first,
// and reaching the budget is a fault. If pick is set, it chooses the next path at random among
// those not followed yet, so that a small budget reaches every depth.
func explore(lim simLimits, mut mutant, budget int, pick *rand.Rand) (states int, fault string) {
	seen := map[uint64]bool{}
	stack := [][]int{{}}
	for len(stack) > 0 {
		last := len(stack) - 1
		if pick != nil {
			i := pick.IntN(len(stack))
			stack[i], stack[last] = stack[last], stack[i]
		}
		path := stack[last]
		stack = stack[:last]
		w := replay(lim, mut, path, nil)
		if w.ended {
			w.atEnd()
		}
		if w.fault != "" {
			return states, w.fault + pathNames(lim, mut, path)
		}
		k := w.key()
		if w.ended || seen[k] {
			continue
		}
		seen[k] = true
		if states++; states > budget {
			if pick != nil {
				return budget, ""
			}
			return states, "there are too many states"
		}
		for i := range w.events() {
			stack = append(stack, append(slices.Clone(path), i))
		}
		if states%progressEvery == 0 {
			if w.runWithoutFaults(false); w.fault != "" {
				return states, w.fault + pathNames(lim, mut, path)
			}
		}
	}
	return states, ""
}

// replay returns the simulation after the events of path. It calls the function seen, if not nil,
// with each event.
func replay(lim simLimits, mut mutant, path []int, seen func(event)) *simulation {
	w := newSimulation(lim, mut)
	for _, i := range path {
		ev := w.events()[i]
		if seen != nil {
			seen(ev)
		}
		ev.do()
		w.settle()
		if w.fault != "" || w.ended {
			break
		}
	}
	return w
}

// pathNames returns the names of the events of path.
func pathNames(lim simLimits, mut mutant, path []int) string {
	var names strings.Builder
	replay(lim, mut, path, func(ev event) { names.WriteString("\n\t" + ev.String()) })
	return names.String()
}

var keySeed = maphash.MakeSeed()

type may = [simFaults]int

var simulations = map[string]simLimits{
	"memory":       {batches: 3, records: 1, window: 2, may: may{ends: 1, answers: 1}},
	"opens":        {batches: 2, records: 2, window: 2, may: may{ends: 1, opens: 2}},
	"spool":        {batches: 3, records: 1, window: 2, may: may{ends: 1}, spool: true, full: true},
	"open":         {batches: 2, records: 1, window: 2, may: may{ends: 1, opens: 2}, spool: true},
	"handler":      {batches: 2, records: 1, window: 2, may: may{ends: 1, opens: 2}, handler: true},
	"scarce":       {batches: 3, records: 1, window: 1, may: may{ends: 1, opens: 1}, handler: true, scarce: true},
	"crowded":      {batches: 2, records: 1, window: 1, may: may{opens: 1}, handler: true, spool: true, full: true, scarce: true},
	"both":         {batches: 2, records: 1, window: 2, may: may{opens: 2}, handler: true, spool: true, full: true},
	"kept":         {batches: 2, records: 1, window: 2, may: may{ends: 1, answers: 1}, keeps: true, spool: true, full: true},
	"early":        {batches: 2, records: 1, window: 1, may: may{earlyEnds: 2, cleanEnds: 1, opens: 1}},
	"clean":        {batches: 3, records: 1, window: 2, may: may{cleanEnds: 2}},
	"slow":         {batches: 3, records: 1, window: 2, may: may{answers: 1, again: 1}, slow: true},
	"leaving":      {batches: 2, records: 1, window: 2, may: may{refusals: 2, answers: 1}, slow: true},
	"parts":        {batches: 2, records: 2, window: 2, may: may{answers: 2}, answerKinds: []answerKind{allButFirstOpen, firstRefused, firstRefusedRestOpen, smaller, searching, endedPermanently}},
	"streams":      {batches: 2, records: 2, window: 2, streams: 2, may: may{answers: 2}, answerKinds: []answerKind{oneStream, holdingStream, holdingAll}},
	"no room":      {batches: 2, records: 2, window: 2, streams: 2, may: may{answers: 2}, answerKinds: []answerKind{holdingStream, holdingAll}, noRoom: true},
	"held, spool":  {batches: 3, records: 2, window: 2, streams: 2, may: may{answers: 1, opens: 1, badAppends: 1, badReads: 1}, answerKinds: []answerKind{holdingStream}, spool: true, full: true},
	"held":         {batches: 2, records: 2, window: 2, streams: 2, may: may{answers: 1}, answerKinds: []answerKind{holdingStream}, handler: true},
	"held, scarce": {batches: 2, records: 2, window: 2, streams: 2, may: may{answers: 1}, answerKinds: []answerKind{holdingStream}, noRoom: true, handler: true, scarce: true},
	"full":         {batches: 2, records: 2, window: 2, streams: 2, may: may{answers: 1, opens: 1}, answerKinds: []answerKind{holdingStream}, noRoom: true, spool: true, full: true},
	"disk":         {batches: 2, records: 1, window: 2, may: may{ends: 1, badAppends: 1, badReads: 1}, spool: true, full: true},
	"leases":       {batches: 2, records: 1, window: 2, may: may{ends: 1, answers: 1}, keeps: true},
	"suspect":      {batches: 2, records: 1, window: 1, may: may{ends: 6}},
	"silent":       {batches: 3, records: 1, window: 1, streams: 2, may: may{ends: 3, waits: 1}},
}

// maxStates exceeds the number of states of each simulation in the table.
const maxStates = 2_000_000

// TestExplore visits a sample of the states of each simulation, chosen by the seed. If the
// environment variable FOREBAY_TORTURE is 500 or more, it visits all states. Then each transition
// in the diagrams of the state types must occur.
func TestExplore(t *testing.T) {
	seed := testkit.Seed(t)
	budget := testkit.Rounds(t, race.Fewer(4_000, 20), maxStates) // a single goroutine runs the machine, so the race detector finds little here
	var all transitions
	t.Run("simulations", func(t *testing.T) {
		for name, lim := range simulations {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				lim.transitions = new(transitions)
				var pick *rand.Rand
				if budget < maxStates {
					pick = testkit.Rand(seed)
				}
				n, fault := explore(lim, noMutant, budget, pick)
				if fault != "" {
					t.Fatalf("after %d states: %s", n, fault)
				}
				t.Logf("%d states", n)
				all.merge(lim.transitions)
			})
		}
	})
	if budget < maxStates {
		all.check(t, false)
		return
	}
	for seed := range uint64(1000) {
		rng := testkit.Rand(seed)
		lim := randomLimits(rng)
		lim.transitions = &all
		if fault := walk(lim, rng); fault != "" {
			t.Fatalf("seed %d: %s", seed, fault)
		}
	}
	all.check(t, true)
}

// The exploration finds a fault in a simulation with a deliberate defect (mutant).
func TestExploreCatchesMutants(t *testing.T) {
	race.Skip(t)
	for mut, name := range map[mutant]string{
		mutantNoFence: "memory", mutantFreeAtEnd: "memory", mutantSpillBehind: "spool", mutantEarlyEnd: "early", mutantRound: "slow", mutantProbe: "suspect",
	} {
		if n, fault := explore(simulations[name], mut, maxStates, nil); fault == "" {
			t.Errorf("mutant %d is not detected after %d states", mut, n)
		} else {
			t.Logf("mutant %d after %d states: %s", mut, n, fault)
		}
	}
}

// walk performs random events in a large simulation, and checks that all records are settled
// afterwards.
func walk(lim simLimits, rng *rand.Rand) (fault string) {
	w := newSimulation(lim, noMutant)
	var names []string
	stop := rng.IntN(2000)
	for range stop {
		evs := w.events()
		if len(evs) == 0 {
			break
		}
		if rng.IntN(100) == 0 { // the search for suspects needs long times without other faults
			names = append(names, "a good time")
			w.stepsWithoutFaults(rng.IntN(400))
			continue
		}
		ev := evs[rng.IntN(len(evs))]
		if (ev.name == "close" || ev.name == "late" || ev.name == "over" || ev.name == "abandon") && rng.IntN(40) > 0 {
			continue // otherwise most walks would be short
		}
		names = append(names, ev.String())
		ev.do()
		w.settle()
		if w.ended {
			w.atEnd()
		}
		if w.fault != "" || w.ended {
			break
		}
	}
	if w.fault == "" && !w.ended {
		names = append(names, "all goes well")
		w.runWithoutFaults(rng.IntN(2) == 0)
	}
	if w.fault == "" {
		return ""
	}
	return w.fault + "\n\t" + strings.Join(names[max(0, len(names)-60):], "\n\t")
}

// randomLimits returns random limits of a simulation for walk.
func randomLimits(rng *rand.Rand) simLimits {
	lim := simLimits{
		batches: 5 + rng.IntN(60), records: 1 + rng.IntN(8), window: 1 + rng.IntN(8), streams: 1 + rng.IntN(3)*rng.IntN(2),
		slow: rng.IntN(2) == 0, spool: rng.IntN(2) == 0, handler: rng.IntN(3) == 0, keeps: rng.IntN(3) == 0,
		full: rng.IntN(2) == 0, scarce: rng.IntN(2) == 0, noRoom: rng.IntN(4) == 0,
	}
	for i := range lim.may {
		if rng.IntN(3) == 0 {
			lim.may[i] = rng.IntN(40)
		}
	}
	if rng.IntN(2) == 0 {
		lim.jitter = func(lo, hi time.Duration) time.Duration {
			return lo + time.Duration(rng.Int64N(int64(max(1, hi-lo+1))))
		}
	}
	if rng.IntN(4) == 0 {
		lim.age = time.Duration(1+rng.IntN(100)) * time.Second
	}
	if rng.IntN(4) == 0 {
		lim.poison, lim.refusesReferences, lim.mute = 2+rng.IntN(20), rng.IntN(3) == 0, rng.IntN(2) == 0
		if rng.IntN(2) == 0 {
			lim.suspectAnswer = []answerKind{firstRefused, smaller, searching, holdingStream, endedPermanently, doubtful, serverError}[rng.IntN(7)]
		}
		if lim.noRoom && lim.streams%lim.poison == 0 { // all records of a stream are poisonous, and each would be tried for an hour
			lim.poison++
		}
	}
	for f := range answerKinds {
		perStream := f == oneStream || f == holdingStream || f == holdingAll
		if rng.IntN(2) == 0 && (lim.streams > 1 || !perStream) {
			lim.answerKinds = append(lim.answerKinds, f)
		}
	}
	return lim
}

// Sessions that end cleanly while only the probe of a suspect is left to send are opened with a
// pause.
func TestProbesOpenSessionsWithAPause(t *testing.T) {
	w := newSimulation(simLimits{batches: 8, records: 1, window: 1, poison: 5}, noMutant)
	for range w.lim.batches {
		w.addBatch()
	}
	onlyProbe := func() bool {
		return w.m.sess.state == opening && w.m.poison.Phase() != poison.Usual && w.m.queue.first(false) == nil
	}
	for w.settle(); !onlyProbe(); w.settle() {
		if w.step() {
			continue
		}
		if w.now = w.m.wakeAt(w.now); w.now.IsZero() {
			t.Fatalf("no session is opened for a probe: %s", w.left())
		}
	}
	for start := w.now; w.now == start; w.settle() {
		switch s := w.s; {
		case s == nil:
			w.now = w.m.wakeAt(w.now)
		case s.opening && len(s.reports) == 0:
			w.end(0, nil)
			w.openReturns(nil)
		case len(s.reports) > 0:
			w.passReports(1)
		default:
			w.closeReturns()
		}
	}
	if w.fault != "" {
		t.Error(w.fault)
	}
}

// Random walks in large simulations find no fault.
func TestWalk(t *testing.T) {
	base := testkit.Seed(t)
	var all transitions
	for i := range testkit.Rounds(t, 60, 20000) { // not testkit.Walks: a single walk does not make all transitions
		seed := base + uint64(i)
		rng := testkit.Rand(seed)
		lim := randomLimits(rng)
		lim.transitions = &all
		if fault := walk(lim, rng); fault != "" {
			t.Fatalf("FOREBAY_SEED=%d: %+v: %s", seed, lim, fault)
		}
	}
	all.check(t, false)
}

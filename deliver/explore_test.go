package deliver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// The exploration walks through every order of events of a small world: a few batches,
// a window of two, sessions that answer, refuse, end and hang, a spool, a handler, a
// Close at any point. The machine under test is the one that ships. After each event
// it is run until it waits, and everything that must hold is checked. States that were
// seen before are not entered again.

// A mutant is a deliberate fault of the world, which the checks must notice.
type mutant uint8

const (
	noMutant mutant = iota
	// mutantNoFence lets answers of a dead session count.
	mutantNoFence
	// mutantFreeAtEnd frees the memory of a session when it ends, not when it has closed.
	mutantFreeAtEnd
	// mutantSpillBehind spills batches that wait before those that are under way.
	mutantSpillBehind
)

// limits bounds a world.
type worldLimits struct {
	batches, records, window int
	ends, opens, refusals    int // failures of each kind
	spool, handler           bool
	lent                     bool
	full                     bool // the producer is full at some point
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
	fault  string

	added  int
	frames []frame // of the spool, not acknowledged
	seq    uint64
	acc    batch.Account // of the spool

	opening bool
	closing bool     // Close of the session was called
	dead    bool     // the session has ended
	given   []*entry // to this session, in order
	answers []bool   // of them, answered
	arrived int      // of them, at the destination, in order

	offered               *entry
	suspects              map[uint64]bool // were set aside: the stated exception to the order
	copies                map[uint64]int
	last                  uint64 // the newest first copy
	failures              int
	ended                 bool
	closed                int // how far Close has come
	released              map[*holder]bool
	ends, opens, refusals int
	wasFull               bool
}

func newWorld(lim worldLimits, mut mutant) *world {
	w := &world{lim: lim, mutant: mut, now: time.Unix(1e9, 0), copies: map[uint64]int{}, suspects: map[uint64]bool{}, released: map[*holder]bool{}}
	high := func(lo, hi time.Duration) time.Duration { return hi }
	retry := RetryOptions{Min: time.Second, Max: 2 * time.Second, FatalDelay: time.Minute, MaxAge: -1, Budget: NewBudget(100, 100)}
	brk, err := (&BreakerOptions{Failures: 2, Successes: 1, ProbeRecords: 1}).resolve()
	if err != nil {
		panic(err)
	}
	w.led = &ledger{}
	if lim.spool {
		w.led.spill = w
	}
	w.m = newMachine(settings{
		window: lim.window, retry: retry, spool: lim.spool, handler: lim.handler, asideBytes: 1 << 20, jitter: high,
		post: func(string, error, uint64) {}, bury: func(*batch.Batch, error) {}, buried: func() bool { return false },
		release: func(h *holder) { w.released[h] = true }, outside: func() uint64 { return 0 },
	}, w.led, &circuit{o: brk, jitter: high})
	w.settle()
	return w
}

// Append, Next, Ack and Account are the spool.
func (w *world) Append(b *batch.Batch) (uint64, error) {
	w.seq++
	f := frame{seq: w.seq}
	for _, r := range b.All() {
		f.tickets = append(f.tickets, r.Ticket)
	}
	w.acc.Accepted += uint64(b.Len())
	w.acc.Pending.Spill += uint64(b.Len())
	w.frames = append(w.frames, f)
	return w.seq, nil
}

func (w *world) Next() (*batch.Batch, uint64, error) {
	for i := range w.frames {
		if f := &w.frames[i]; !f.out {
			f.out = true
			return ticketBatch(f.tickets), f.seq, nil
		}
	}
	return nil, 0, io.EOF
}

func (w *world) Ack(seq uint64) error {
	for len(w.frames) > 0 && w.frames[0].seq <= seq {
		n := uint64(len(w.frames[0].tickets))
		w.acc.Delivered += n
		w.acc.Pending.Spill -= n
		w.frames = w.frames[1:]
	}
	return nil
}

func (w *world) Account() batch.Account { return w.acc }

func ticketBatch(tickets []uint64) *batch.Batch {
	var b batch.Builder
	for _, t := range tickets {
		b.Append([]byte{byte(t), '\n'}, t, batch.Meta{})
	}
	return b.Batch(nil)
}

func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// settle carries out actions until the machine waits.
func (w *world) settle() {
	for range 200 {
		if w.fault != "" || w.ended {
			return
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

func (w *world) do(a action) {
	switch a.do {
	case doOpen:
		if w.opening || w.closing || w.given != nil {
			w.fail("a second session is opened")
		}
		w.opening, w.dead = true, false
	case doSend:
		if w.dead {
			w.fail("a batch is given to a session that has ended")
		}
		w.given = append(w.given, a.e)
		holderOf[a.e.out] = a.e.pin
		w.answers = append(w.answers, false)
		if n := w.unanswered(); n > w.lim.window {
			w.fail("%d batches are under way, the window is %d", n, w.lim.window)
		}
	case doClose:
		w.closing, w.dead = true, true
	case doSpill:
		e := a.e
		if w.mutant == mutantSpillBehind {
			for _, o := range w.m.ring {
				if o.inMemory() && o.place == waiting {
					e = o
					break
				}
			}
		}
		w.spill(e)
	case doPull:
		b, seq, err := w.Next()
		if err == io.EOF {
			w.m.notPulled(w.now, nil)
		} else {
			w.m.pulled(w.now, b, seq)
		}
	case doForget:
		w.Ack(a.seq)
		w.m.forgotten(a.seq)
	case doHandle:
		w.offered = a.e
	case doEnd:
		w.ended = true
	}
}

func (w *world) spill(e *entry) {
	seq, _ := w.Append(e.b)
	var out *batch.Batch
	if (e.place == sent || e.place == offered) && !w.m.backlog {
		if b, got, err := w.Next(); err == nil && got == seq {
			out = b
		} else if err == nil {
			w.fail("the spool hands out %d for %d: an older batch was in it", got, seq)
		}
	}
	w.m.spilled(w.now, e, seq, out, nil)
}

func (w *world) unanswered() (n int) {
	for _, a := range w.answers {
		if !a {
			n++
		}
	}
	return n
}

// arrive notes that the first n batches of the session are at the destination.
func (w *world) arrive(n int) {
	for ; w.arrived < n; w.arrived++ {
		if w.given[w.arrived].ctl {
			continue
		}
		for _, r := range w.given[w.arrived].out.All() {
			if w.copies[r.Ticket]++; w.copies[r.Ticket] > 1 {
				continue
			}
			if w.suspects[r.Ticket] {
				continue
			}
			if r.Ticket < w.last {
				w.fail("the first copy of record %d arrives after that of %d", r.Ticket, w.last)
			}
			w.last = r.Ticket
		}
	}
}

// check looks at everything that must hold at any moment.
func (w *world) check() {
	a, lent := w.led.account()
	if err := a.Check(); err != nil {
		w.fail("%v", err)
	}
	var open uint64
	for _, e := range slices.Concat(w.m.ring, w.m.aside) {
		if e.inMemory() {
			open += uint64(e.b.Len())
		}
	}
	if open != a.Pending.Inflight+lent {
		w.fail("%d records are in memory, the account says %d and %d", open, a.Pending.Inflight, lent)
	}
	for _, e := range w.m.aside {
		if e.trial != nil {
			w.suspects[e.b.First()] = true
		}
	}
	for i, e := range w.given {
		if !w.answers[i] && e.out != nil && w.reads(e) {
			w.fail("the session may still read batch %d, and its memory was freed", e.out.First())
		}
	}
	last := uint64(0)
	for _, f := range w.frames {
		for _, t := range f.tickets {
			if w.suspects[t] {
				continue
			}
			if t <= last {
				w.fail("record %d is behind %d on disk", t, last)
			}
			last = t
		}
	}
	if dup := w.duplicates(); dup > w.failures*w.lim.window*w.lim.records {
		w.fail("%d duplicates after %d failures", dup, w.failures)
	}
}

// reads reports whether the memory that the session reads for e was freed.
func (w *world) reads(e *entry) bool { return w.released[holderOf[e.out]] }

// holderOf says whose memory a batch was in when it was given. Batches are not shared
// between worlds.
var holderOf = map[*batch.Batch]*holder{}

func (w *world) duplicates() (n int) {
	for _, k := range w.copies {
		n += k - 1
	}
	return n
}

// events returns what can happen now.
func (w *world) events() (out []event) {
	add := func(name string, do func()) { out = append(out, event{name, 0, do}) }
	addAt := func(name string, i int, do func()) { out = append(out, event{name, i, do}) }
	if w.added < w.lim.batches && w.closed == 0 {
		add("batch", w.addBatch)
	}
	if w.opening {
		add("opened", func() { w.opening = false; w.m.opened() })
		if w.opens < w.lim.opens {
			add("open fails", func() {
				w.opens++
				w.failures++
				w.opening = false
				w.m.failedToOpen(w.now, errors.New("refused"))
			})
		}
	}
	for i, e := range w.given {
		if w.answers[i] {
			continue
		}
		b := e.out
		if !w.dead {
			addAt("answer", i, func() { w.arrive(i + 1); w.answer(i, b, batch.Outcome{}) })
			if w.refusals < w.lim.refusals {
				addAt("open", i, func() {
					w.refusals++
					w.failures++
					w.arrive(i)
					busy := batch.Outcome{Open: batch.All(), Why: errors.New("busy")}
					w.answer(i, b, busy)
					for k := i + 1; k < len(w.given); k++ { // a driver sends nothing behind an open record
						if !w.answers[k] {
							w.answer(k, w.given[k].out, busy)
						}
					}
					w.arrived = len(w.given) // none of them arrives any more
				})
				if i == w.firstUnanswered() && i >= w.arrived {
					addAt("refuse", i, func() {
						w.refusals++
						w.answers[i] = true
						w.dead = true
						w.m.refused(w.now, e, errors.New("leaving"))
						w.dropBehind(i)
					})
				}
			}
			continue
		}
		addAt("late answer", i, func() { w.lateAnswer(i, e) })
	}
	if n := len(w.given); n > 0 && !w.dead && w.ends < w.lim.ends {
		for k := w.arrived; k <= n; k++ {
			addAt("end with", k, func() {
				w.ends++
				w.failures++
				w.arrive(k)
				w.dead = true
				w.m.sessionEnded(w.now, errors.New("reset"))
				if w.mutant == mutantFreeAtEnd {
					for len(w.m.given) > 0 {
						w.m.unpin(w.m.given[0])
					}
				}
			})
		}
	}
	if w.closing && !w.opening {
		add("closed", func() {
			w.closing = false
			w.given, w.answers, w.arrived = nil, nil, 0
			w.m.closed()
		})
	}
	if w.closing && w.opening { // given up while it was being opened
		add("closed unopened", func() { w.closing, w.opening = false, false; w.m.closed() })
	}
	if w.offered != nil {
		e := w.offered
		add("handled", func() { w.offered = nil; w.m.handled(w.now, e, nil, batch.Drops{}) })
		add("not handled", func() { w.offered = nil; w.m.handled(w.now, e, errors.New("no"), batch.Drops{}) })
	}
	if w.lim.full && !w.wasFull {
		add("full", func() { w.wasFull = true; w.m.full = true; w.settle(); w.m.full = false })
	}
	if at := w.m.wakeAt(w.now); !at.IsZero() {
		add("time", func() { w.now = at })
	}
	switch w.closed {
	case 0:
		add("close", func() { w.closed = 1; w.m.close(w.now, true, true) })
	case 1:
		add("late", func() { w.closed = 2; w.m.beLate(false) })
	case 2:
		add("over", func() { w.closed = 3; w.m.beLate(true) })
	case 3:
		if w.closing || w.opening || w.offered != nil {
			add("abandon", func() { w.closed = 4; w.m.abandon() })
		}
	}
	return out
}

type event struct {
	name string
	at   int // the batch that it is about
	do   func()
}

func (e event) String() string { return fmt.Sprint(e.name, " ", e.at) }

func (w *world) addBatch() {
	var tickets []uint64
	for i := range w.lim.records {
		tickets = append(tickets, uint64(w.added*w.lim.records+i+1))
	}
	w.added++
	h := &holder{no: uint64(w.added), left: uint64(w.lim.records)}
	if w.lim.lent {
		h.custody, h.loan = lent, &loan{}
	}
	b := ticketBatch(tickets)
	w.led.take(h)
	w.m.add(w.now, h, b)
}

func (w *world) firstUnanswered() int { return slices.Index(w.answers, false) }

// dropBehind: a session that has refused a Send is given nothing of what comes after.
func (w *world) dropBehind(i int) {
	for k := i + 1; k < len(w.given); k++ {
		if !w.answers[k] {
			w.answers[k] = true
			w.m.refused(w.now, w.given[k], errors.New("leaving"))
		}
	}
}

func (w *world) answer(i int, b *batch.Batch, o batch.Outcome) {
	w.answers[i] = true
	w.m.answer(w.now, b, o)
}

// lateAnswer is an answer of a session that has ended.
func (w *world) lateAnswer(i int, e *entry) {
	if w.mutant == mutantNoFence && e.place == waiting {
		e.place = sent
		w.m.under++
	}
	w.answers[i] = true
	w.m.answer(w.now, e.out, batch.Outcome{})
}

// end checks what must hold when the machine has ended.
func (w *world) atEnd() {
	a, lent := w.led.account()
	if err := a.Check(); err != nil || a.Pending.Inflight+lent != 0 {
		w.fail("at the end: %v: %s, %d lent", err, a, lent)
	}
	w.led.mu.Lock()
	unknown := w.led.unknown
	w.led.mu.Unlock()
	if unknown > a.Dropped[batch.Shutdown]+w.loanDrops() {
		w.fail("%d unknown of %d dropped", unknown, a.Dropped[batch.Shutdown])
	}
	if a.Delivered > uint64(len(w.copies)) {
		w.fail("%d records are delivered, %d have arrived", a.Delivered, len(w.copies))
	}
}

func (w *world) loanDrops() uint64 {
	if w.lim.lent {
		return uint64(w.lim.batches * w.lim.records)
	}
	return 0
}

// key is a hash of the state.
func (w *world) key() uint64 {
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
	for _, list := range [...][]*entry{m.ring, m.aside} {
		n(uint64(len(list)))
		for _, e := range list {
			n(e.b.First(), uint64(e.b.Len()), uint64(e.place), e.h.seq)
			is(e.pin != nil, e.unknown, e.tried, e.out != nil && e.out == e.b)
		}
	}
	for _, d := range m.disk {
		n(d.seq, uint64(d.parts), uint64(d.pins))
	}
	st, trips, _, _ := m.brk.look()
	n(uint64(m.stage), uint64(m.sess), uint64(m.under), uint64(st), uint64(m.failures), m.handler.due, trips, uint64(m.brk.consecutive),
		m.search.suspect, uint64(m.search.deaths), uint64(m.search.size))
	is(m.hurried, m.last, m.regroup, m.answered, m.backlog, m.full, m.handler.busy, m.search.on, m.search.control)
	later(m.notBefore, m.spillAt, m.handler.at, m.brk.until)
	n(uint64(w.added), uint64(w.arrived), w.last, uint64(w.closed), uint64(w.ends), uint64(w.opens), uint64(w.refusals))
	is(w.opening, w.closing, w.dead, w.offered != nil, w.wasFull)
	is(w.answers...)
	for _, e := range w.given {
		n(e.out.First(), uint64(e.out.Len()))
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

var keySeed = maphash.MakeSeed()

// explore visits all states. It returns how many there are, and the first fault with
// the events that lead to it.
func explore(lim worldLimits, mut mutant, most int) (states int, fault string) {
	seen := map[uint64]bool{}
	stack := [][]int{{}}
	for len(stack) > 0 {
		path := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		w, names := replay(lim, mut, path)
		if w.fault != "" {
			return states, w.fault + "\n\t" + strings.Join(names, "\n\t")
		}
		if w.ended {
			w.atEnd()
			if w.fault != "" {
				return states, w.fault + "\n\t" + strings.Join(names, "\n\t")
			}
			continue
		}
		k := w.key()
		if seen[k] {
			continue
		}
		seen[k] = true
		if states++; states > most {
			return states, "there are too many states"
		}
		n := len(w.events())
		if n == 0 {
			return states, "nothing can happen any more\n\t" + strings.Join(names, "\n\t")
		}
		for i := range n {
			stack = append(stack, append(slices.Clone(path), i))
		}
	}
	return states, ""
}

func replay(lim worldLimits, mut mutant, path []int) (*world, []string) {
	clear(holderOf)
	w := newWorld(lim, mut)
	var names []string
	for _, i := range path {
		ev := w.events()[i]
		names = append(names, ev.String())
		ev.do()
		w.settle()
		if w.fault != "" || w.ended {
			break
		}
	}
	return w, names
}

var worlds = map[string]worldLimits{
	"memory":  {batches: 3, records: 1, window: 2, ends: 1, refusals: 1},
	"opens":   {batches: 2, records: 2, window: 2, ends: 1, opens: 2},
	"spool":   {batches: 3, records: 1, window: 2, ends: 1, spool: true, full: true},
	"open":    {batches: 2, records: 1, window: 2, ends: 1, opens: 2, spool: true},
	"handler": {batches: 2, records: 1, window: 2, ends: 1, opens: 2, handler: true},
	"both":    {batches: 2, records: 1, window: 2, opens: 2, handler: true, spool: true, full: true},
	"lent":    {batches: 2, records: 1, window: 2, ends: 1, refusals: 1, lent: true, spool: true, full: true},
}

func TestExplore(t *testing.T) {
	for name, lim := range worlds {
		if raceDetector && name != "opens" {
			continue // one goroutine uses a machine: make test explores the others without the detector
		}
		t.Run(name, func(t *testing.T) {
			n, fault := explore(lim, noMutant, 2_000_000)
			if fault != "" {
				t.Fatalf("after %d states: %s", n, fault)
			}
			t.Logf("%d states", n)
		})
	}
}

func TestExploreCatchesMutants(t *testing.T) {
	for mut, name := range map[mutant]string{mutantNoFence: "memory", mutantFreeAtEnd: "memory", mutantSpillBehind: "spool"} {
		if n, fault := explore(worlds[name], mut, 2_000_000); fault == "" {
			t.Errorf("mutant %d lives after %d states", mut, n)
		} else {
			t.Logf("mutant %d after %d states: %s", mut, n, fault)
		}
	}
}

// walk makes random steps in a large world.
func walk(lim worldLimits, rng *rand.Rand) (fault string) {
	clear(holderOf)
	w := newWorld(lim, noMutant)
	var names []string
	for range 5000 {
		evs := w.events()
		if len(evs) == 0 {
			return "nothing can happen any more"
		}
		ev := evs[rng.IntN(len(evs))]
		if (ev.name == "close" || ev.name == "late" || ev.name == "over" || ev.name == "abandon") && rng.IntN(40) > 0 {
			continue // else most walks would be short
		}
		names = append(names, ev.String())
		ev.do()
		w.settle()
		if w.ended {
			w.atEnd()
		}
		if w.fault != "" {
			return w.fault + "\n\t" + strings.Join(names[max(0, len(names)-60):], "\n\t")
		}
		if w.ended {
			return ""
		}
	}
	return ""
}

func TestWalk(t *testing.T) {
	base := testkit.Seed(t)
	for i := range testkit.Rounds(300, 20000) {
		seed := base + uint64(i)
		rng := testkit.Rand(seed)
		lim := worldLimits{
			batches: 5 + rng.IntN(60), records: 1 + rng.IntN(8), window: 1 + rng.IntN(8), ends: rng.IntN(60), opens: rng.IntN(20),
			refusals: rng.IntN(20), spool: rng.IntN(2) == 0, handler: rng.IntN(3) == 0, lent: rng.IntN(3) == 0, full: rng.IntN(2) == 0,
		}
		if fault := walk(lim, rng); fault != "" {
			t.Fatalf("FOREBAY_SEED=%d: %+v: %s", seed, lim, fault)
		}
	}
}

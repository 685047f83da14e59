package slab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/forebay-log/forebay/batch"
)

// Small histories of Write, Flush, Close and of what the destination saw are
// checked against a sequential model of a bounded queue: is there an order of
// single moments, one inside each operation, in which the model does the same?
//
// What the drain does is part of the history. A Send is an operation that takes
// records from the head of the queue, from when it is entered to when it returns;
// that they are settled is a second one, from there to the next Send. Their room is
// free with that where the borrower is inline, and else a moment later: Settle and Return
// are two calls, and a Flush may end between them. Flush and Close are two operations
// each, over the same interval: the first says what is waited for, the second that it is
// there.

type historyKind uint8

const (
	hWrite historyKind = iota
	hSend
	hSettle
	hFree
	hFlushBegin
	hFlushEnd
	hCloseBegin
	hCloseEnd
)

// A historyOp is the input of an operation; the output is folded into it,
// because every outcome is known when the history is checked.
type historyOp struct {
	kind   historyKind
	id     byte   // of the record, or of the Flush
	result string // hWrite: accepted, dropped, closed
	ids    string // hSend: what was offered
	acked  int    // hSend: how many of these the destination took
}

// A modelState is comparable: it holds record numbers as bytes of strings.
type modelState struct {
	accepted string    // in order of acceptance
	taken    int       // of these by the destination, or evicted
	settled  int       // of these accounted for
	free     int       // of these no longer in a slab
	full     int       // accepted[:full] were there when a write found no room
	flush    [8]uint16 // by Flush: 1 + what it waits for
	closed   bool
}

// A queueModel is the sequential specification of a Writer.
type queueModel struct {
	// leastFull is the least number of records that are pending when no slab is
	// free: before that nothing may be dropped or evicted.
	leastFull int
	// apart says that room is free by an operation of its own, not with hSettle.
	apart   bool
	evicted [256]bool
}

func (m *queueModel) step(s modelState, op historyOp) (bool, modelState) {
	pending := len(s.accepted) - s.free
	switch op.kind {
	case hWrite:
		switch op.result {
		case "closed":
			return s.closed, s
		case "dropped":
			return !s.closed && pending >= m.leastFull, s
		}
		if pending >= m.leastFull {
			s.full = len(s.accepted)
		}
		s.accepted += string(rune(op.id))
		return !s.closed, s
	case hSend:
		if s.taken != s.settled {
			return false, s
		}
		at := s.taken
		for i := range len(op.ids) {
			at = m.skip(s, at)
			if at == len(s.accepted) || s.accepted[at] != op.ids[i] {
				return false, s
			}
			if at++; i < op.acked {
				s.taken = at
			}
		}
		return len(op.ids) > 0, s
	case hSettle:
		if s.settled = s.taken; !m.apart {
			s.free = s.settled
		}
	case hFree:
		s.free = s.settled
		return s.settled == s.taken, s
	case hFlushBegin:
		s.flush[op.id] = uint16(1 + len(s.accepted))
	case hFlushEnd:
		want := int(s.flush[op.id]) - 1
		return want >= 0 && (s.settled >= want || m.skip(s, s.settled) >= want), s
	case hCloseBegin:
		s.closed = true
	case hCloseEnd:
		return s.closed && m.skip(s, s.settled) == len(s.accepted), s
	}
	return true, s
}

// skip steps over records that were evicted, which they may have been only if a
// write found no room after they were accepted.
func (m *queueModel) skip(s modelState, at int) int {
	for at < len(s.accepted) && m.evicted[s.accepted[at]] && at < s.full {
		at++
	}
	return at
}

func (m *queueModel) porcupine() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return modelState{} },
		Step: func(state, input, _ any) (bool, any) {
			ok, next := m.step(state.(modelState), input.(historyOp))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	}
}

// A history is recorded beside a run.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *history) now() int64 { return h.clock.Add(1) }

func (h *history) add(client int, call, ret int64, op historyOp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Call: call, Return: ret})
}

// check reports whether the history is one of m.
func (h *history) check(m *queueModel) porcupine.CheckResult {
	delivered := map[byte]bool{}
	for _, o := range h.ops {
		if op := o.Input.(historyOp); op.kind == hSend {
			for i := range op.acked {
				delivered[op.ids[i]] = true
			}
		}
	}
	for _, o := range h.ops {
		if op := o.Input.(historyOp); op.kind == hWrite && op.result == "accepted" && !delivered[op.id] {
			m.evicted[op.id] = true
		}
	}
	return porcupine.CheckOperationsTimeout(m.porcupine(), h.ops, 2*time.Second)
}

func (h *history) String() string {
	var sb strings.Builder
	for _, o := range h.ops {
		op := o.Input.(historyOp)
		fmt.Fprintf(&sb, "%4d..%-4d client %d kind %d id %d %s ids %d acked %d\n",
			o.Call, o.Return, o.ClientId, op.kind, op.id, op.result, []byte(op.ids), op.acked)
	}
	return sb.String()
}

// A historySink notes what it is sent, and fails now and then.
type historySink struct {
	h     *history
	rng   *rand.Rand
	left  int64 // when the last Send returned; 0 before the first
	apart bool  // room is free by an operation of its own
	fail  bool

	dropped func() bool // whether anything was; a Send may wait for that, a little
}

const (
	drainClient = 100
	freeClient  = 101
)

// settled notes that what the last Send took was settled by now.
func (s *historySink) settled(now int64) {
	if s.left == 0 {
		return
	}
	s.h.add(drainClient, s.left, now, historyOp{kind: hSettle})
	if s.apart {
		s.h.add(freeClient, s.left, now, historyOp{kind: hFree})
	}
}

func (s *historySink) Send(_ context.Context, b *batch.Batch) (o batch.Outcome) {
	entered := s.h.now()
	s.settled(entered)
	op := historyOp{kind: hSend, acked: b.Len()}
	for _, r := range b.All() {
		op.ids += string(rune(r.Data[0]))
	}
	for range s.rng.IntN(30) {
		runtime.Gosched()
	}
	if s.rng.IntN(8) == 0 { // so that callers do not wait in vain only where the machine is slow
		for began := time.Now(); time.Since(began) < time.Millisecond && !s.dropped(); {
			runtime.Gosched()
		}
	}
	if s.fail {
		switch s.rng.IntN(5) {
		case 0:
			op.acked, o = 0, failed()
		case 1:
			op.acked = s.rng.IntN(b.Len() + 1)
			o = partly(op.acked)
		}
	}
	s.h.add(drainClient, entered, s.h.now(), op)
	s.left = s.h.now()
	return o
}

func TestLinearizable(t *testing.T) {
	rounds := 80
	if os.Getenv("FOREBAY_TORTURE") != "" {
		rounds = 20_000
	}
	if testing.Short() {
		rounds = 30
	}
	block, wait, newest, oldest := Block(), BlockFor(50*time.Microsecond), DropNewest(), DropOldest()
	for _, pol := range []WhenFull{block, wait, newest, oldest} {
		t.Run(pol.String(), func(t *testing.T) {
			results := &tally{n: map[string]int{}}
			for range rounds {
				recordHistory(t, pol, uint64(time.Now().UnixNano()), results)
				if t.Failed() {
					return
				}
			}
			t.Log(results.n)
			if results.n["unknown"] > rounds/10 {
				t.Errorf("%d of %d histories were not decided", results.n["unknown"], rounds)
			}
			if pol.kind != whenFullBlock && results.n["dropped"]+results.n["evicted"] == 0 {
				t.Error("nothing was ever dropped")
			}
		})
	}
}

// A tally counts what came up.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what] += n
}

// recordHistory makes and checks one history of some forty operations.
func recordHistory(t *testing.T, pol WhenFull, seed uint64, results *tally) {
	const perSlab, length = 4, MinSlabBytes/4 - batch.SlotBytes
	rng := rand.New(rand.NewPCG(seed, 0))
	h := &history{}
	s := &historySink{h: h, rng: rand.New(rand.NewPCG(seed, 1)), fail: rng.IntN(2) == 0}
	slabs := 2 + rng.IntN(2)
	c := courierFor(s)
	c.wait, c.wants.Inline = time.Microsecond, rng.IntN(2) == 0
	w := mustSink(t, c, &Options{SlabBytes: MinSlabBytes, SlabCount: slabs, WhenFull: pol,
		FlushInterval: time.Duration(1+rng.IntN(50)) * time.Microsecond})
	s.apart, s.dropped = !c.wants.Inline, func() bool { return w.Account().Dropped.Total() > 0 }
	m := &queueModel{leastFull: (slabs-1)*perSlab + 1, apart: s.apart}
	if pol.kind == whenFullDropOldest {
		// A slab is dropped as a whole, and what is left of others may be a record
		// each.
		m.leastFull = slabs
	}
	closer := rng.IntN(4) // who closes, if anybody does
	var wg sync.WaitGroup
	for g := range 3 {
		grng := rand.New(rand.NewPCG(seed, uint64(10+g)))
		wg.Go(func() {
			p := make([]byte, length)
			for i := range 10 {
				call := h.now()
				switch k := grng.IntN(12); {
				case k == 0 && i < 8:
					id := byte(g)
					if h.flushed(id) {
						continue
					}
					if err := w.Flush(t.Context()); err != nil {
						t.Errorf("seed %d: flush: %v", seed, err)
					}
					ret := h.now()
					h.add(g, call, ret, historyOp{kind: hFlushBegin, id: id})
					h.add(g, call, ret, historyOp{kind: hFlushEnd, id: id})
				case g == closer && i == 7:
					closeNow(t, w)
					ret := h.now()
					h.add(g, call, ret, historyOp{kind: hCloseBegin})
					h.add(g, call, ret, historyOp{kind: hCloseEnd})
				default:
					op := historyOp{kind: hWrite, id: byte(1 + 10*g + i), result: "accepted"}
					p[0] = op.id
					switch err := w.WriteRecord(p, batch.Meta{}); {
					case errors.Is(err, ErrClosed):
						op.result = "closed"
					case errors.Is(err, ErrDropped):
						op.result = "dropped"
					case err != nil:
						t.Errorf("seed %d: %v", seed, err)
					}
					h.add(g, call, h.now(), op)
				}
				for range grng.IntN(3) {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	call := h.now()
	closeNow(t, w)
	ret := h.now()
	s.settled(ret)
	h.add(9, call, ret, historyOp{kind: hCloseBegin})
	h.add(9, call, ret, historyOp{kind: hCloseEnd})
	switch res := h.check(m); res {
	case porcupine.Unknown: // too many overlapping operations for the time given
		results.add("unknown", 1)
	case porcupine.Illegal:
		t.Errorf("seed %d, %v, %d slabs: the history is %v:\n%v", seed, pol, slabs, res, h)
	}
	evicted := 0
	for _, o := range h.ops {
		if op := o.Input.(historyOp); op.kind == hWrite {
			results.add(op.result, 1)
			if op.result == "accepted" && m.evicted[op.id] {
				evicted++
			}
		}
	}
	results.add("evicted", evicted)
	if a := w.Account(); a.Dropped[batch.Full] < uint64(evicted) || pol.kind != whenFullDropOldest && evicted > 0 || a.Check() != nil {
		t.Errorf("seed %d: %d accepted records are gone, account %v", seed, evicted, a)
	}
}

// flushed reports whether Flush id is in the history already.
func (h *history) flushed(id byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.ops {
		if op := o.Input.(historyOp); op.kind == hFlushBegin && op.id == id {
			return true
		}
	}
	return false
}

// The model tells histories that keep the promises from those that break one.
func TestModelRefuses(t *testing.T) {
	write := func(id byte) historyOp { return historyOp{kind: hWrite, id: id, result: "accepted"} }
	send := func(ids string) historyOp { return historyOp{kind: hSend, ids: ids, acked: len(ids)} }
	drop := historyOp{kind: hWrite, id: 9, result: "dropped"}
	refuse := historyOp{kind: hWrite, id: 9, result: "closed"}
	settle := historyOp{kind: hSettle}
	type at struct {
		call, ret int64
		op        historyOp
	}
	tests := map[string]struct {
		ops []at
		ok  bool
	}{
		"in order":              {[]at{{1, 2, write(1)}, {3, 4, write(2)}, {5, 6, send("\x01\x02")}, {6, 9, settle}}, true},
		"exchanged":             {[]at{{1, 2, write(1)}, {3, 4, write(2)}, {5, 6, send("\x02\x01")}, {6, 9, settle}}, false},
		"overlapping exchanged": {[]at{{1, 4, write(1)}, {2, 3, write(2)}, {5, 6, send("\x02\x01")}, {6, 9, settle}}, true},
		"exchanged over sends":  {[]at{{1, 2, write(1)}, {3, 4, write(2)}, {5, 6, send("\x02")}, {6, 7, settle}, {7, 8, send("\x01")}, {8, 9, settle}}, false},
		"before it was written": {[]at{{1, 2, send("\x01")}, {3, 4, write(1)}, {5, 9, settle}}, false},
		"sent again":            {[]at{{1, 2, write(1)}, {3, 4, historyOp{kind: hSend, ids: "\x01"}}, {4, 5, settle}, {5, 6, send("\x01")}, {6, 9, settle}}, true},
		"sent twice":            {[]at{{1, 2, write(1)}, {3, 4, send("\x01")}, {4, 5, settle}, {5, 6, send("\x01")}, {6, 9, settle}}, false},
		"a dropped with room":   {[]at{{1, 2, write(1)}, {3, 4, drop}, {5, 6, send("\x01")}, {6, 9, settle}}, false},
		"b dropped when full":   {[]at{{1, 2, write(1)}, {3, 4, write(2)}, {4, 5, drop}, {5, 6, send("\x01\x02")}, {6, 9, settle}}, true},
		"dropped after settled": {[]at{{1, 2, write(1)}, {2, 3, write(2)}, {4, 5, send("\x01\x02")}, {5, 6, settle}, {6, 7, send("\x03")}, {5, 6, write(3)}, {8, 9, drop}}, false},
		"evicted when full":     {[]at{{1, 2, write(1)}, {2, 3, write(2)}, {4, 5, write(3)}, {6, 7, send("\x02\x03")}, {8, 9, settle}}, true},
		"lost with room":        {[]at{{1, 2, write(1)}, {4, 5, write(3)}, {6, 7, send("\x03")}, {8, 9, settle}}, false},
		"newest lost":           {[]at{{1, 2, write(1)}, {2, 3, write(2)}, {4, 5, write(3)}, {6, 7, send("\x01\x02")}, {8, 9, settle}, {10, 11, historyOp{kind: hCloseBegin}}, {10, 11, historyOp{kind: hCloseEnd}}}, false},
		"flush too early": {[]at{{1, 2, write(1)}, {3, 4, historyOp{kind: hFlushBegin}}, {3, 4, historyOp{kind: hFlushEnd}},
			{5, 6, send("\x01")}, {6, 9, settle}}, false},
		"flush beside the write": {[]at{{1, 4, write(1)}, {2, 3, historyOp{kind: hFlushBegin}}, {2, 3, historyOp{kind: hFlushEnd}},
			{5, 6, send("\x01")}, {6, 9, settle}}, true},
		"flush before settled": {[]at{{1, 2, write(1)}, {3, 4, send("\x01")}, {3, 4, historyOp{kind: hFlushBegin}}, {3, 4, historyOp{kind: hFlushEnd}},
			{5, 9, settle}}, false},
		"accepted after close": {[]at{{1, 2, historyOp{kind: hCloseBegin}}, {1, 2, historyOp{kind: hCloseEnd}}, {3, 4, write(1)}, {4, 5, send("\x01")}}, false},
		"refused before close": {[]at{{1, 2, refuse}, {3, 4, historyOp{kind: hCloseBegin}}, {3, 4, historyOp{kind: hCloseEnd}}}, false},
		"refused after close":  {[]at{{3, 4, refuse}, {1, 2, historyOp{kind: hCloseBegin}}, {1, 2, historyOp{kind: hCloseEnd}}}, true},
		"close leaves one":     {[]at{{1, 2, write(1)}, {3, 4, historyOp{kind: hCloseBegin}}, {3, 4, historyOp{kind: hCloseEnd}}, {5, 6, send("\x01")}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			for _, a := range tt.ops {
				h.add(0, a.call, a.ret, a.op)
			}
			if got := h.check(&queueModel{leastFull: 2}); (got == porcupine.Ok) != tt.ok {
				t.Errorf("the model says %v", got)
			}
		})
	}
	// Two records are settled, and their room is free later, or not yet.
	for name, freed := range map[string]int64{"dropped before free": 11, "dropped after free": 9} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.add(0, 1, 2, write(1))
			h.add(0, 3, 4, write(2))
			h.add(drainClient, 5, 6, send("\x01\x02"))
			h.add(drainClient, 7, 8, settle)
			h.add(freeClient, 7, freed, historyOp{kind: hFree})
			h.add(0, 10, 11, drop)
			if got := h.check(&queueModel{leastFull: 2, apart: true}); (got == porcupine.Ok) != (freed > 10) {
				t.Errorf("the model says %v", got)
			}
		})
	}
}

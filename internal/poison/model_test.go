package poison

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A record of the model.
type record struct {
	ticket uint64
	stream uint32
}

// proof is the evidence against a suspect.
type proof struct {
	failures int       // probes that only it failed, since
	since    time.Time // it was found or, once it is parked, since the server failed during its probe
}

// model is a queue, a server and the clock around a Detector. Each send is accepted as a whole, or
// the session ends and nothing of it is.
type model struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	d     *Detector
	now   time.Time
	moves map[string]bool

	ticket    uint64 // the last one
	queue     []record
	parked    map[*Suspect]record
	proofs    map[*Suspect]proof
	held      map[uint32]time.Time // until then; tried for a minute after
	times     map[uint32]int
	head      uint64 // ticket of the suspect that is not parked
	failures  int    // that count against the destination, in a row
	delivered map[uint64]bool
	condemned []uint64
	latest    map[uint32]uint64 // of the records that never were suspects

	poisonous func(record) bool
	// accepts returns whether the server accepts records, and how long the driver waits if not.
	accepts func(rs []record) (ok bool, waited time.Duration)
	doubt   bool // failures are answers
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, seed: seed, rng: testkit.Rand(seed), now: time.Unix(1e9, 0), moves: map[string]bool{}, parked: map[*Suspect]record{}, proofs: map[*Suspect]proof{},
		held: map[uint32]time.Time{}, times: map[uint32]int{}, delivered: map[uint64]bool{}, latest: map[uint32]uint64{},
		poisonous: func(record) bool { return false },
		accepts:   func([]record) (bool, time.Duration) { return true, 0 },
	}
	jitter := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(m.rng.Int64N(int64(hi-lo)+1)) }
	m.d = New(m, jitter, func(from, to Phase) { m.moves[fmt.Sprint(from, to)] = true })
	return m
}

func (m *model) IsHeld(stream uint32) bool { return m.now.Before(m.held[stream]) }

func (m *model) Tries(stream uint32) int {
	if until, ok := m.held[stream]; ok && m.now.Before(until.Add(time.Minute)) {
		return max(1, m.times[stream])
	}
	return 0
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("FOREBAY_SEED=%d: %s", m.seed, fmt.Sprintf(format, args...))
}

func (m *model) batchOf(rs []record) *batch.Batch {
	var b batch.Batch
	for _, r := range rs {
		b.Append([]byte("x\n"), r.ticket, batch.Meta{Stream: r.stream})
	}
	return &b
}

// first returns the index of the first record whose stream is not held, and the number of those in
// a row, at most n.
func (m *model) first(n int) (i, k int) {
	for i < len(m.queue) && m.IsHeld(m.queue[i].stream) {
		i++
	}
	for i+k < len(m.queue) && k < n && !m.IsHeld(m.queue[i+k].stream) {
		k++
	}
	return i, k
}

// step sends what is next. It reports false if nothing can be sent now.
func (m *model) step() bool {
	if len(m.queue) == 0 {
		for _, s := range m.d.Empty() {
			m.queue = append(m.queue, m.parked[s])
			delete(m.parked, s)
		}
	}
	i, k := m.first(1 + m.rng.IntN(20))
	st := m.d.Next(m.now)
	if st.Suspect != nil && m.now.Before(st.Suspect.Due) {
		m.now = st.Suspect.Due
	}
	f := Failure{Kind: st.Kind, Head: true, Only: len(m.queue)+len(m.parked) == 1, Doubt: m.doubt}
	var rs []record
	switch st.Kind {
	case Reference:
		for _, rec := range st.Reference.All() {
			rs = append(rs, record{rec.Ticket, rec.Stream})
		}
		if !m.delivered[rs[0].ticket] || m.poisonous(rs[0]) {
			m.fail("a reference that was never accepted: %v", rs)
		}
	case Probed:
		r, ok := m.parked[st.Suspect]
		if !ok { // older records may have been released meanwhile
			i = slices.IndexFunc(m.queue, func(r record) bool { return r.ticket == m.head })
			r = m.queue[i]
		}
		rs = []record{r}
	default:
		if st.Max > 0 {
			k = min(k, st.Max)
		}
		if rs = m.queue[i : i+k]; k == 0 {
			return false
		}
	}
	f.Batch = m.batchOf(rs)
	ok, waited := m.accepts(rs)
	if slices.ContainsFunc(rs, m.poisonous) && st.Kind != Reference {
		ok = false
	}
	if ok {
		waited = 0
	}
	if p := m.d.Patience(st.Kind); !ok && p > 0 && waited > p {
		waited, f.Cut = p, true
	}
	m.now = m.now.Add(waited + time.Millisecond)
	if f.Waited = waited; ok {
		m.taken(st, i, f.Batch, rs)
	} else {
		m.failed(st, i, f)
	}
	return true
}

func (m *model) taken(st Step, i int, b *batch.Batch, rs []record) {
	m.d.Answered(time.Millisecond)
	m.failures = 0
	if st.Kind == Reference {
		m.d.ReferenceAnswered(m.now, b, true)
		return
	}
	late := st.Kind == Probed
	m.d.Taken(m.now, b, &batch.Outcome{})
	m.d.Progress(len(rs))
	for _, r := range rs {
		if m.times[r.stream] = 0; !late && r.ticket < m.latest[r.stream] {
			m.fail("record %d comes after %d", r.ticket, m.latest[r.stream])
		}
		if m.delivered[r.ticket] = true; !late {
			m.latest[r.stream] = r.ticket
		}
	}
	if _, parked := m.parked[st.Suspect]; parked {
		delete(m.parked, st.Suspect)
	} else {
		m.queue = slices.Delete(m.queue, i, i+len(rs))
	}
	m.d.Forget(st.Suspect)
}

// serverFailed notes that the probe of s, which may be nil, has no result. The evidence against a
// parked suspect starts anew: the server fails for all records.
func (m *model) serverFailed(s *Suspect) {
	if _, parked := m.parked[s]; parked {
		m.proofs[s] = proof{since: m.now}
	}
}

func (m *model) failed(st Step, i int, f Failure) {
	c := m.d.Failed(m.now, f)
	s := c.Suspect
	if s == nil {
		s = st.Suspect
	} else {
		m.head = m.queue[i].ticket
		m.proofs[s] = proof{failures: s.failures, since: m.now}
	}
	switch st.Kind {
	case Reference:
		m.serverFailed(s)
	case Probed:
		p := m.proofs[s]
		m.proofs[s] = proof{failures: p.failures + 1, since: p.since}
	}
	switch {
	case c.Condemn:
		r, parked := m.parked[s]
		if !parked {
			r = m.queue[i]
			m.queue = slices.Delete(m.queue, i, i+1)
		}
		if delete(m.parked, s); !m.poisonous(r) {
			m.fail("a good record is condemned: %v after %+v", r, *s)
		}
		if p := m.proofs[s]; p.failures < probes || !f.Doubt && m.now.Sub(p.since) < probeSpan {
			m.fail("record %d is condemned too early: %+v after %+v", r.ticket, *s, p)
		}
		m.condemned = append(m.condemned, r.ticket)
	case c.Park:
		if m.parked[s] = m.queue[i]; len(m.parked) > mostSuspects {
			m.fail("%d suspects", len(m.parked))
		}
		m.queue = slices.Delete(m.queue, i, i+1)
	}
	if stream := streamOf(f.Batch); c.Hold && m.Tries(stream) > 0 && !m.IsHeld(stream) || c.Hold && m.Tries(stream) == 0 {
		m.times[stream]++
		m.held[stream] = m.now.Add(max(c.After, time.Second<<min(m.times[stream], 6)))
	}
	wait := Pause
	if c.Failing {
		m.failures++
		wait = time.Duration(m.rng.Int64N(int64(200*time.Millisecond) << min(m.failures, 7)))
		if m.failures > 5 {
			if m.d.References() > 0 {
				m.serverFailed(m.d.suspect)
			}
			m.d.Interrupt(m.now)
		}
	}
	m.now = m.now.Add(wait)
}

// run runs the model for d, or until nothing is left.
func (m *model) run(d time.Duration) {
	for end := m.now.Add(d); m.now.Before(end) && len(m.queue)+len(m.parked) > 0; {
		if m.step() {
			continue
		}
		var next time.Time
		consider := func(at time.Time) {
			if at.After(m.now) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		m.d.Wake(consider)
		for _, until := range m.held {
			consider(until)
			consider(until.Add(time.Minute)) // tried until then
		}
		if next.IsZero() {
			m.fail("nothing will happen: %d in the queue, %d parked", len(m.queue), len(m.parked))
		}
		m.now = next
	}
}

func (m *model) add(n, streams int) {
	for range n {
		m.ticket++
		m.queue = append(m.queue, record{m.ticket, uint32(m.rng.IntN(streams))})
	}
}

// ailing returns a server that is ill in a way chosen by rng.
func ailing(rng *rand.Rand) func([]record) (bool, time.Duration) {
	var waits time.Duration
	if rng.IntN(3) == 0 {
		waits = 30 * time.Second
	}
	switch n, p := 0, 0.6+0.35*rng.Float64(); rng.IntN(5) {
	case 0: // a full disk
		return func([]record) (bool, time.Duration) { return false, waits }
	case 1: // it accepts every n-th message
		every := 2 + rng.IntN(6)
		return func([]record) (bool, time.Duration) { n++; return n%every == 0, waits }
	case 2: // what is behind one stream is full
		return func(rs []record) (bool, time.Duration) {
			return !slices.ContainsFunc(rs, func(r record) bool { return r.stream == 0 }), waits
		}
	case 3: // … or refuses at random
		return func(rs []record) (bool, time.Duration) {
			return rng.Float64() > p || !slices.ContainsFunc(rs, func(r record) bool { return r.stream == 0 }), waits
		}
	default:
		return func([]record) (bool, time.Duration) { return rng.Float64() > p, waits }
	}
}

// walk runs m with a server that is ill in many ways, one after the other, and well in the end.
func (m *model) walk() {
	streams := 1 + m.rng.IntN(4)
	if every := uint64(m.rng.IntN(40)); every > 1 {
		first := m.rng.Uint64N(every)
		m.poisonous = func(r record) bool { return r.ticket%every == first }
	}
	m.doubt = m.rng.IntN(4) == 0
	well := m.accepts
	for range m.rng.IntN(6) {
		m.add(m.rng.IntN(60), streams)
		if m.accepts = well; m.rng.IntN(3) > 0 {
			m.accepts = ailing(m.rng)
		}
		m.run(time.Duration(m.rng.IntN(600)) * time.Second)
	}
	m.accepts = well
	for stream := range streams { // so that there are reference records
		r := record{m.ticket + 1, uint32(stream)}
		for m.poisonous(r) {
			r.ticket++
		}
		m.ticket = r.ticket
		m.queue = append(m.queue, r)
	}
	m.run(24 * time.Hour)
	heard := map[uint32]bool{} // more bad records in a row than there are places look like a full stream
	for stream := range m.latest {
		heard[stream] = true
	}
	for _, r := range append(slices.Collect(maps.Values(m.parked)), m.queue...) {
		if heard[r.stream] && m.d.References() > 0 {
			m.fail("%v is left: %d in the queue, %d parked", r, len(m.queue), len(m.parked))
		}
	}
}

// Random walks: the server is ill in many ways, one after the other, and some records are
// poisonous. No good record is condemned, records that are no suspects are delivered in order, all
// poisonous ones are found once the server works, and each arrow of the drawing is taken.
func TestWalk(t *testing.T) {
	base := testkit.Seed(t)
	moves := map[string]bool{}
	for i := range testkit.Rounds(300, 20000) {
		seed := base + uint64(i)
		m := newModel(t, seed)
		m.walk()
		for k := range m.moves {
			moves[k] = true
		}
	}
	drawn := map[string]bool{}
	for _, ways := range [...]struct {
		from Phase
		to   []Phase
	}{
		{Usual, []Phase{Pieces, Server, Stream}}, {Pieces, []Phase{Usual, Server, Stream, Alone}}, {Server, []Phase{Stream, Alone, Usual, Pieces}},
		{Stream, []Phase{Alone, Usual, Pieces}}, {Alone, []Phase{Usual, Pieces}},
	} {
		for _, to := range ways.to {
			way := fmt.Sprint(ways.from, to)
			if drawn[way] = true; !moves[way] {
				t.Errorf("%s is drawn, and nothing takes it", way)
			}
		}
	}
	for way := range moves {
		if !drawn[way] {
			t.Errorf("%s is not drawn", way)
		}
	}
}

// Among 400 records of a server that works, poisonous ones are found alone: in a minute if they end
// the session, in half an hour if the server is silent for 30 s.
func TestPoisonIsFound(t *testing.T) {
	for _, silent := range []time.Duration{0, 30 * time.Second} {
		for _, at := range []uint64{2, 200, 400} {
			m := newModel(t, testkit.Seed(t))
			m.add(400, 2)
			m.poisonous = func(r record) bool { return r.ticket == at }
			m.accepts = func([]record) (bool, time.Duration) { return true, silent }
			began := m.now
			m.run(24 * time.Hour)
			most := time.Minute
			if silent > 0 {
				most = 30 * time.Minute
			}
			if took := m.now.Sub(began); took > most || !slices.Equal(m.condemned, []uint64{at}) || len(m.delivered) != 399 {
				t.Errorf("silent for %s, record %d: after %s condemned %v, delivered %d", silent, at, took, m.condemned, len(m.delivered))
			}
		}
	}
}

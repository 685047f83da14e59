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

// A record is a log record of the model.
type record struct {
	ticket uint64
	stream uint32
}

// A suspectEvidence is the evidence against a suspect, counted by the model.
type suspectEvidence struct {
	failures int       // number of probes, counted from since, in which only the suspect failed
	since    time.Time // time at which the suspect was found; for a parked suspect, the last time at which the server failed during a probe of it
}

// A model simulates a queue, a server and a clock for a Detector. The server accepts a batch
// entirely, or it accepts nothing and the session ends.
type model struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	d     *Detector
	now   time.Time
	moves map[string]bool

	ticket    uint64 // ticket of the newest record
	queue     []record
	parked    map[*Suspect]record
	evidence  map[*Suspect]suspectEvidence
	held      map[uint32]time.Time // end of the hold of each stream; for a minute after it, Tries is not 0
	times     map[uint32]int
	head      uint64 // number of consecutive failures attributed to the destination
	failures  int    // consecutive failures that count against the destination
	delivered map[uint64]bool
	condemned []uint64
	latest    map[uint32]uint64 // for each stream, the newest delivered record that was never suspected

	poisonous func(record) bool
	// accepts reports whether the server accepts records. If it does not, waited is the time until
	// the driver notices the failure.
	accepts func(rs []record) (ok bool, waited time.Duration)
	sign    Sign // how the server fails; Cut is not used
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, seed: seed, rng: testkit.Rand(seed), now: time.Unix(1e9, 0), moves: map[string]bool{}, parked: map[*Suspect]record{}, evidence: map[*Suspect]suspectEvidence{},
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

// firstNotHeld returns the index of the first record whose stream is not held. k is the number of
// consecutive such records from there, at most n.
func (m *model) firstNotHeld(n int) (i, k int) {
	for i < len(m.queue) && m.IsHeld(m.queue[i].stream) {
		i++
	}
	for i+k < len(m.queue) && k < n && !m.IsHeld(m.queue[i+k].stream) {
		k++
	}
	return i, k
}

// step performs the send that the Detector returns. It returns false if nothing can be sent now.
func (m *model) step() bool {
	if len(m.queue) == 0 {
		for _, s := range m.d.Empty() {
			m.queue = append(m.queue, m.parked[s])
			delete(m.parked, s)
		}
	}
	i, k := m.firstNotHeld(1 + m.rng.IntN(20))
	st := m.d.Next(m.now)
	if st.Suspect != nil && m.now.Before(st.Suspect.Due) {
		m.now = st.Suspect.Due
	}
	f := Failure{Kind: st.Kind, Head: true, Only: len(m.queue)+len(m.parked) == 1, Sign: m.sign}
	var rs []record
	switch st.Kind {
	case Reference:
		for _, rec := range st.Reference.All() {
			rs = append(rs, record{rec.Ticket, rec.Stream})
		}
		if !m.delivered[rs[0].ticket] || m.poisonous(rs[0]) {
			m.fail("a record that was never accepted is sent as a reference record: %v", rs)
		}
	case Probed:
		r, ok := m.parked[st.Suspect]
		if !ok { // the suspect is not parked, and older records may have been released before it
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
		waited, f.Sign = p, Cut
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
			m.fail("record %d was delivered after record %d", r.ticket, m.latest[r.stream])
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

// serverFailed is called when the probe of s, which may be nil, has no result because the server
// fails for all records. The evidence against parked suspects is reset.
func (m *model) serverFailed(s *Suspect) {
	if _, parked := m.parked[s]; parked {
		m.evidence[s] = suspectEvidence{since: m.now}
	}
}

func (m *model) failed(st Step, i int, f Failure) {
	c := m.d.Failed(m.now, f)
	s := c.Suspect
	if s == nil {
		s = st.Suspect
	} else {
		m.head = m.queue[i].ticket
		m.evidence[s] = suspectEvidence{failures: s.failures, since: m.now}
	}
	switch st.Kind {
	case Reference:
		m.serverFailed(s)
	case Probed:
		p := m.evidence[s]
		m.evidence[s] = suspectEvidence{failures: p.failures + 1, since: p.since}
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
		p, span := m.evidence[s], map[Sign]time.Duration{Ended: probeSpan, Cut: probeSpan, ServerError: longSpan}[f.Sign]
		if p.failures < probes || m.now.Sub(p.since) < span {
			m.fail("record %d is condemned too early: %+v after %+v", r.ticket, *s, p)
		}
		m.condemned = append(m.condemned, r.ticket)
	case c.Park:
		if m.parked[s] = m.queue[i]; len(m.parked) > mostSuspects {
			m.fail("%d suspects", len(m.parked))
		}
		m.queue = slices.Delete(m.queue, i, i+1)
	}
	if stream := f.Batch.At(0).Stream; c.Hold && m.Tries(stream) > 0 && !m.IsHeld(stream) || c.Hold && m.Tries(stream) == 0 {
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

// run runs the model for the duration d, or until no record is left.
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
			consider(until.Add(time.Minute)) // until that time, Tries returns more than 0
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

// failingServer returns a server that fails in a random way.
func failingServer(rng *rand.Rand) func([]record) (bool, time.Duration) {
	var waits time.Duration
	if rng.IntN(3) == 0 {
		waits = 30 * time.Second
	}
	switch n, p := 0, 0.6+0.35*rng.Float64(); rng.IntN(5) {
	case 0: // a server with a full disk: it accepts nothing
		return func([]record) (bool, time.Duration) { return false, waits }
	case 1: // the server accepts every nth message
		every := 2 + rng.IntN(6)
		return func([]record) (bool, time.Duration) { n++; return n%every == 0, waits }
	case 2: // the server refuses stream 0
		return func(rs []record) (bool, time.Duration) {
			return !slices.ContainsFunc(rs, func(r record) bool { return r.stream == 0 }), waits
		}
	case 3: // the server refuses stream 0 at random
		return func(rs []record) (bool, time.Duration) {
			return rng.Float64() > p || !slices.ContainsFunc(rs, func(r record) bool { return r.stream == 0 }), waits
		}
	default:
		return func([]record) (bool, time.Duration) { return rng.Float64() > p, waits }
	}
}

// walk runs m with a server that fails in several ways, one after another, and finally with a
// working server.
func (m *model) walk() {
	streams := 1 + m.rng.IntN(4)
	if every := uint64(m.rng.IntN(40)); every > 1 {
		first := m.rng.Uint64N(every)
		m.poisonous = func(r record) bool { return r.ticket%every == first }
	}
	if m.rng.IntN(3) == 0 {
		m.sign = []Sign{Doubt, ServerError}[m.rng.IntN(2)]
	}
	well := m.accepts
	for range m.rng.IntN(6) {
		m.add(m.rng.IntN(60), streams)
		if m.accepts = well; m.rng.IntN(3) > 0 {
			m.accepts = failingServer(m.rng)
		}
		m.run(time.Duration(m.rng.IntN(600)) * time.Second)
	}
	m.accepts = well
	for stream := range streams { // gives each stream a reference record
		r := record{m.ticket + 1, uint32(stream)}
		for m.poisonous(r) {
			r.ticket++
		}
		m.ticket = r.ticket
		m.queue = append(m.queue, r)
	}
	m.run(24 * time.Hour)
	hasRef := map[uint32]bool{} // streams without a reference record, for which too many consecutive bad records look like a failing stream
	for stream := range m.latest {
		hasRef[stream] = true
	}
	for _, r := range append(slices.Collect(maps.Values(m.parked)), m.queue...) {
		if hasRef[r.stream] && m.d.References() > 0 {
			m.fail("record %v was not delivered: %d records are in the queue, %d parked", r, len(m.queue), len(m.parked))
		}
	}
}

// The server fails in several ways, one after another, and some records are bad. No good record is
// dropped. Records that are not suspects are delivered in order. All bad records are found when the
// server works again. The detector makes exactly the listed transitions.
func TestWalk(t *testing.T) {
	base := testkit.Seed(t)
	moves := map[string]bool{}
	for i := range testkit.Rounds(t, 150, 20000) {
		seed := base + uint64(i)
		m := newModel(t, seed)
		m.walk()
		for k := range m.moves {
			moves[k] = true
		}
	}
	drawn := map[string]bool{}
	for _, transition := range [...]struct {
		from Phase
		to   []Phase
	}{
		{Usual, []Phase{Pieces, Server, Stream}}, {Pieces, []Phase{Usual, Server, Stream, Alone}}, {Server, []Phase{Stream, Alone, Usual, Pieces}},
		{Stream, []Phase{Alone, Usual, Pieces}}, {Alone, []Phase{Usual, Pieces}},
	} {
		for _, to := range transition.to {
			name := fmt.Sprint(transition.from, to)
			if drawn[name] = true; !moves[name] {
				t.Errorf("the listed transition %s does not occur", name)
			}
		}
	}
	for way := range moves {
		if !drawn[way] {
			t.Errorf("the transition %s occurs and is not listed", way)
		}
	}
}

// A single bad record among 400 is found, and no other record is dropped. The search takes at most
// a minute if the record ends the session, and at most half an hour if the server stops answering
// for 30 s.
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

// The records of a batch are searched once three consecutive sessions have ended at it. Sessions that
// end at different batches do not start a search.
func TestSearchStartsAfterThreeEndsOfOneBatch(t *testing.T) {
	m := newModel(t, 1)
	ends := func(ticket uint64) Phase {
		m.d.Failed(m.now, Failure{Batch: m.batchOf([]record{{ticket: ticket}, {ticket: ticket + 1}}), Head: true})
		return m.d.Phase()
	}
	for i, ticket := range []uint64{1, 1, 3, 1, 1} {
		if p := ends(ticket); p != Usual {
			t.Fatalf("after %d ends: phase %d", i+1, p)
		}
	}
	if p := ends(1); p != Pieces {
		t.Errorf("after three ends of one batch: phase %d", p)
	}
}

// A destination that has never accepted a record gives no evidence against a record: after an outage
// of a day, the only record is delivered.
func TestOutageCondemnsNoRecord(t *testing.T) {
	m := newModel(t, testkit.Seed(t))
	m.add(1, 1)
	up := m.now.Add(24 * time.Hour)
	m.accepts = func([]record) (bool, time.Duration) { return m.now.After(up), 0 }
	m.run(48 * time.Hour)
	if len(m.condemned) > 0 || !m.delivered[1] {
		t.Errorf("condemned %v, delivered %v", m.condemned, m.delivered)
	}
}

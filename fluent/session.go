package fluent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// A phase is the state of a session. It determines how Send handles a batch.
//
//	begun ─┬─ NoAck, no handshake ──▶ probing ──connection kept──▶ serving
//	       │                             └──────connection closed─▶ leaving
//	       ├─ HELO: keepalive=false ──▶ oneBatch ──batch sent─────▶ leaving
//	       └─ otherwise ──────────────▶ serving
//
//	serving ──a preferred server is back, or a weighted one is next──▶ leaving
//
// A session enters over from every phase except begun: when the connection has ended, was idle or
// does not respond, and when the session is closed.
type phase uint8

const (
	begun    phase = iota // connected; nothing was sent
	probing               // the first message shows whether the server keeps the connection
	oneBatch              // one batch is sent, each message over a separate connection
	serving               // batches are pipelined
	leaving               // Send refuses batches; answers still arrive
	over                  // Send refuses batches; no answers arrive
)

// enterLocked sets the phase. It is the only setter. The caller holds s.mu.
func (s *session) enterLocked(to phase) {
	if phaseEntered != nil && s.phase != to {
		phaseEntered(s, s.phase, to)
	}
	s.phase = to
}

// phaseEntered is a test hook, called with s.mu held. Tests set it before any session begins.
var phaseEntered func(s *session, from, to phase)

// errLeft is the error of Send for a batch that the session refuses. The outlet sends the batch to the
// next session.
var errLeft = errors.New("fluent: this session accepts no more records")

// A session uses one connection, or in phase oneBatch a connection per message, see
// [deliver.Session]. Two goroutines work on it: the outlet calls Send and Close, which do not overlap,
// and writes frames; the reader, started by serve, handles acknowledgements and the end of the
// connection. A frame is registered in pending before it is written, so the reader knows its id
// whenever the acknowledgement arrives.
type session struct {
	c    *Driver
	l    deliver.Life
	stop func() bool   // cancels the call of giveUp at the end of the context of l
	done chan struct{} // closed when the reader has ended; nil before serve

	// heard, with capacity 1, receives a token after each acknowledgement and at the end of
	// the reader.
	heard chan struct{}

	// Used only in the goroutine of Send:
	retryPreferredAt time.Time // when preferred servers are tried; zero: never
	rotateAt         time.Time // when the next weighted server is used; zero: not set

	mu    sync.Mutex // leaf lock; guards the fields below
	phase phase
	conn  *conn
	jobs  []*job // without an answer, in the order of Send
	// pending holds the frames without an acknowledgement, in the order of writing. Frames are
	// numbered from 0: pending[i] is number base+i, and byID maps ids to numbers.
	pending          []sent
	base             uint64
	byID             map[chunkID]uint64
	acked            bool        // the server has acknowledged at least one frame
	last             time.Time   // last use of the connection
	probingPreferred bool        // a goroutine is trying preferred servers
	pulse            *time.Timer // calls beat; nil without heartbeats
	sending          bool        // Send is writing: Send, not the reader, calls conclude
	failure          error       // error of writing, or of a heartbeat
	ended            bool        // the reader has ended
	why              error       // reason of ended
	spare            []*job      // for reuse; at most Window+1
}

// A job is one batch in flight. The goroutine of Send writes its frames; either that goroutine or the
// reader answers it, as writing determines.
type job struct {
	b       *batch.Batch
	lay     layout
	waiters []recordWaiter // callers of Post that wait for records of b
	vec     [][]byte       // parts of the frames, for writev
	out     net.Buffers    // the part of vec that is not written yet

	// Guarded by session.mu:
	open    int  // number of frames without an acknowledgement
	writing bool // Send, not the reader, answers the job
}

// sent is a registered frame that has no acknowledgement.
type sent struct {
	j     *job // nil after the acknowledgement
	frame int  // index in j.lay.frames
	id    chunkID
	at    time.Time // start of its AckTimeout
}

// newSession begins a session over nc, whose handshake is complete.
func newSession(c *Driver, l deliver.Life, nc *conn) *session {
	s := &session{c: c, l: l, conn: nc, retryPreferredAt: c.nextPreferredProbe(), last: time.Now(), heard: make(chan struct{}, 1)}
	s.stop = context.AfterFunc(l.Context(), s.giveUp)
	switch {
	case !nc.keepalive:
		s.enter(oneBatch)
	case c.c.NoAck && !c.c.Auth.Secured: // no HELO announces whether the server keeps the connection
		s.enter(probing)
	default:
		s.serve()
	}
	return s
}

// enter is enterLocked for callers that do not hold s.mu.
func (s *session) enter(to phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enterLocked(to)
}

// serve enters phase serving and starts the reader and the heartbeats.
func (s *session) serve() {
	s.done, s.byID = make(chan struct{}), map[chunkID]uint64{}
	s.mu.Lock()
	s.enterLocked(serving)
	s.deadlineLocked()
	s.beatLocked()
	s.mu.Unlock()
	go s.read()
}

// giveUp makes all operations on the connection fail. It is called when the context of l ends.
func (s *session) giveUp() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	c.interrupt()
}

// Send writes b, see [deliver.Session]. In phase serving it returns before the acknowledgement. A batch
// in which no record can be sent is answered at once.
func (s *session) Send(b *batch.Batch) error {
	s.mu.Lock()
	ph := s.phase
	s.mu.Unlock()
	if ph >= leaving || s.l.Context().Err() != nil {
		return errLeft
	}
	j := s.job(b)
	if len(j.lay.frames) == 0 { // all records are refused
		s.answer(j)
		return nil
	}
	// The phases before serving are left only by Send itself, so ph is still the phase.
	if ph < serving {
		s.sendAlone(j, ph)
		return nil
	}
	s.probePreferred()
	s.rotateServers()
	if !s.register(j, 0) {
		return errLeft
	}
	s.write(j, 0)
	return nil
}

// job returns the job for b, with its frames.
func (s *session) job(b *batch.Batch) *job {
	s.mu.Lock()
	var j *job
	if n := len(s.spare); n > 0 {
		j, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		j = new(job)
	}
	s.mu.Unlock()
	// The memory of b is valid now and until the answer, so waiters are found here and not when an
	// acknowledgement arrives.
	j.b = b
	j.waiters = s.c.awaited.appendWaiters(j.waiters[:0], b)
	j.lay.cut(b, s.c.c, s.c.roster.sizes(s.conn.index, s.c.c.bounds()))
	if !s.c.c.NoAck {
		j.lay.name(b, s.c.seed, s.c.salt)
	}
	return j
}

// answer reports that the server accepted all frames of j.
func (s *session) answer(j *job) { s.report(j, nil) }

// report reports the outcome of j to the outlet. If why is not nil, the records of frames without an
// acknowledgement are open for that reason; otherwise they are settled. The memory of the batch is
// not used afterwards, and j may be reused.
func (s *session) report(j *job, why error) {
	l := &j.lay
	o := batch.Outcome{Why: why}
	if len(l.refused) > 0 {
		o.Refused, o.Refusal = batch.Of(slices.Clone(l.refused)...), l.why
		s.c.counts.add(func(st *Stats) { st.Refused += uint64(len(l.refused)) })
	}
	if why != nil {
		var open []int
		for i := range l.frames {
			if f := &l.frames[i]; !f.acked {
				open = l.indexes(open, f)
			}
		}
		slices.Sort(open)
		o.Open = batch.Of(open...)
	}
	// Callers of Post are woken before the outlet settles the records, so that a Post that returned
	// because the account is settled already has its outcome.
	s.c.awaited.settle(j.waiters, &o)
	b := j.b
	s.mu.Lock()
	if i := slices.Index(s.jobs, j); i >= 0 {
		s.jobs = slices.Delete(s.jobs, i, i+1)
	}
	j.b = nil
	clear(j.waiters)
	l.forget()
	if len(s.spare) <= s.c.c.Window {
		s.spare = append(s.spare, j)
	}
	s.mu.Unlock()
	s.l.Answer(b, o)
}

// register adds the frames of j, beginning with index from, to pending. It is called before they are
// written, because an acknowledgement may arrive before the write has returned. It returns false if
// the session accepts no more frames.
func (s *session) register(j *job, from int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != serving {
		return false
	}
	s.last = time.Now()
	idle := len(s.pending) == 0
	frames := j.lay.frames
	j.open, j.writing, s.sending = 0, true, true
	s.jobs = append(s.jobs, j)
	if s.c.c.NoAck {
		return true
	}
	j.open = len(frames) - from
	for i := from; i < len(frames); i++ {
		f := &frames[i]
		// Two equal batches in flight would have equal ids.
		for _, used := s.byID[f.id]; used; _, used = s.byID[f.id] {
			f.id = f.id.next()
		}
		s.byID[f.id] = s.base + uint64(len(s.pending))
		s.pending = append(s.pending, sent{j: j, frame: i, id: f.id, at: s.last})
	}
	if idle { // the deadline was that of IdleTimeout
		s.deadlineLocked()
	}
	return true
}

// deadlineLocked sets the deadline of the reader: AckTimeout after the oldest unacknowledged frame or,
// if there is none, IdleTimeout after the last use.
func (s *session) deadlineLocked() {
	var t time.Time
	switch {
	case s.phase == over || s.failure != nil:
		return // the function that set phase or failure has also set the deadline
	case len(s.pending) > 0:
		t = s.pending[0].at.Add(s.c.c.AckTimeout)
	case s.c.c.IdleTimeout > 0:
		t = s.last.Add(s.c.c.IdleTimeout)
	}
	s.conn.readUntil(t)
}

// finalRead is how long input is read after a failed write. A reason that the server sent before
// it closed the connection has usually arrived already.
const finalRead = 200 * time.Millisecond

// readDeadlineAfter returns the time until which input is read after writing failed with err. A server
// that did not respond has sent no reason, so there is nothing to wait for.
func readDeadlineAfter(err error) time.Time {
	if isMute(err) {
		return time.Now()
	}
	return time.Now().Add(finalRead)
}

// write writes the frames of a registered job, beginning with index from. If they are already
// acknowledged when it returns (with NoAck: once they are written), write answers the job; otherwise
// the reader does. After a failed write the reader ends the session.
func (s *session) write(j *job, from int) {
	err := s.putInOrder(j, from)
	// Exactly one of write and the reader answers j: write if nothing is open any more, otherwise
	// the reader, with the last acknowledgement or at the end.
	s.mu.Lock()
	s.last = time.Now()
	taken := !s.c.c.NoAck && j.open == 0 || s.c.c.NoAck && err == nil && !s.ended
	j.writing = taken // otherwise the reader answers the job
	switch {
	case err == nil:
	case !s.ended: // the reader continues until readDeadlineAfter, then ends the session
		s.enterLocked(over)
		s.failure = err
		s.conn.readUntil(readDeadlineAfter(err))
	case isGone(err) && isGone(s.why):
		s.why = err // more precise: a reader sees only the end of the input
	}
	s.mu.Unlock()
	if taken {
		s.answer(j)
	}
	s.mu.Lock()
	s.sending = false
	ended := s.ended
	s.mu.Unlock()
	if ended {
		s.conclude()
	}
}

// putInOrder writes the frames of a registered job, beginning with index from. A server may omit
// the acknowledgement of a frame that is too large for it and accept the next frame of the same
// tag. Therefore a frame larger than any frame that the server accepted recently is sent alone:
// the next one waits for its acknowledgement.
func (s *session) putInOrder(j *job, from int) error {
	for end := len(j.lay.frames); from < end; {
		to := end
		if !s.c.c.NoAck {
			most := s.c.roster.proven(s.conn.index)
			for i := from; i < end; i++ {
				if j.lay.frames[i].bytes > most { // no lock: the reader modifies only acked
					to = i + 1
					break
				}
			}
		}
		if err := s.put(j, from, to); err != nil {
			return err
		}
		// The proven size may have changed since, because frames were acknowledged during put.
		if !s.c.c.NoAck && j.lay.frames[to-1].bytes > s.c.roster.proven(s.conn.index) && !s.waitAcked(end-to) {
			return nil
		}
		from = to
	}
	return nil
}

// waitAcked waits until all written frames are acknowledged. n is the number of registered frames that
// are not written yet; their AckTimeout begins when waitAcked returns. It returns false if the
// connection has ended.
func (s *session) waitAcked(n int) bool {
	for {
		s.mu.Lock()
		left, ended := len(s.pending) > n, s.ended
		if !left && !ended {
			now := time.Now()
			for i := range s.pending {
				s.pending[i].at = now
			}
			s.deadlineLocked()
		}
		s.mu.Unlock()
		if ended || !left {
			return !ended
		}
		<-s.heard
	}
}

// hear wakes waitAcked. It never blocks.
func (s *session) hear() {
	select {
	case s.heard <- struct{}{}:
	default:
	}
}

// read is the reader: it handles acknowledgements until the connection ends, or until a deadline passes
// for which overdue returns an error. Then the session is over.
func (s *session) read() {
	defer close(s.done)
	var err error
	for err == nil {
		if err = s.conn.answers(s.ack); err != nil {
			break
		}
		if err = s.conn.read(); errors.Is(err, os.ErrDeadlineExceeded) {
			err = s.overdue()
		}
	}
	s.mu.Lock()
	s.enterLocked(over)
	s.ended, s.why = true, err
	// A reason that the server sent replaces the error of writing; the end of the connection does not.
	if s.failure != nil && (err == errNoReason || isGone(err)) {
		s.why = s.failure // more precise than the end of the input
	}
	sending := s.sending
	s.mu.Unlock()
	// A Send that waits for an acknowledgement, or writes, ends now.
	s.hear()
	s.conn.interrupt()
	if !sending { // otherwise write calls conclude
		s.conclude()
	}
}

var (
	errIdle     = errors.New("it was unused for a while")
	errNoReason = errors.New("the server sent no reason")
)

// overdue is called when the deadline of the reader has passed. It returns the reason to end the
// session, or nil if there is none; the reader then continues with a new deadline.
func (s *session) overdue() error {
	if ctx := s.l.Context(); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case s.failure != nil:
		return errNoReason
	case len(s.pending) > 0:
		if now.Sub(s.pending[0].at) >= s.c.c.AckTimeout {
			return noAckWithin(s.c.c.AckTimeout)
		}
	case len(s.jobs) > 0: // with NoAck: Send is writing, so the connection is in use
		s.last = now
	case due(s.last, s.c.c.IdleTimeout):
		s.enterLocked(over)
		return errIdle
	}
	s.deadlineLocked()
	return nil
}

// ack notes that the server has acknowledged the frame id. It answers the job if this was the last
// of its frames. Servers may acknowledge frames in any order. An unknown id has no effect: it may be a
// second acknowledgement.
func (s *session) ack(id chunkID) {
	s.mu.Lock()
	no, known := s.byID[id]
	if !known {
		s.mu.Unlock()
		s.c.counts.add(func(st *Stats) { st.UnknownAcks++ })
		return
	}
	delete(s.byID, id)
	e := s.pending[no-s.base]
	s.pending[no-s.base].j = nil
	s.acked = true
	s.last = time.Now()
	e.j.lay.frames[e.frame].acked = true
	size := e.j.lay.frames[e.frame].bytes
	e.j.open--
	// Remove the acknowledged frames at the beginning of pending. The oldest frame without an
	// acknowledgement determines the deadline.
	n := 0
	for n < len(s.pending) && s.pending[n].j == nil {
		n++
	}
	if n > 0 {
		s.pending = slices.Delete(s.pending, 0, n)
		s.base += uint64(n)
		s.deadlineLocked()
	}
	whole := e.j.open == 0 && !e.j.writing
	s.mu.Unlock()
	s.c.roster.accepted(s.conn.index, size)
	s.hear()
	s.c.counts.add(func(st *Stats) { st.Acks++ })
	if whole {
		s.answer(e.j)
	}
}

// conclude ends the session. It is called once, when both the reader and Send have finished.
func (s *session) conclude() {
	s.mu.Lock()
	err, acked, jobs := s.why, s.acked, slices.Clone(s.jobs)
	s.mu.Unlock()
	if err == errIdle {
		s.end(nil)
		return
	}
	s.lose(err, jobs, acked)
}

// end reports to the outlet that the session is over. err is nil after a normal end. The error is
// fatal if the server refused this client.
func (s *session) end(err error) {
	s.c.counts.add(func(st *Stats) { st.Server = "" })
	if errors.Is(err, errRefused) {
		err = batch.Fatal(err)
	}
	s.l.End(err)
}

// probePreferred starts a goroutine that tries the preferred servers, if the time for that has come.
// If one is reachable, the session enters leaving, and the outlet opens the next session.
func (s *session) probePreferred() {
	if s.retryPreferredAt.IsZero() || time.Now().Before(s.retryPreferredAt) || !s.c.roster.hasPreferred(s.conn.index) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probingPreferred {
		return
	}
	s.probingPreferred, s.retryPreferredAt = true, s.c.nextPreferredProbe()
	go func() {
		found := s.c.preferredReachable(s.l.Context(), s.conn.index)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.probingPreferred = false; found && s.phase == serving {
			s.enterLocked(leaving)
		}
	}()
}

// rotateEvery is how long a connection is used before the next weighted server is connected to.
// Weights are therefore shares of time, not of records.
const rotateEvery = 10 * time.Second

// rotateServers makes the session enter leaving after rotateEvery, if servers are weighted.
func (s *session) rotateServers() {
	switch {
	case !s.c.roster.weighted():
	case s.rotateAt.IsZero():
		s.rotateAt = time.Now().Add(rotateEvery)
	case !time.Now().Before(s.rotateAt):
		s.mu.Lock()
		if s.phase == serving {
			s.enterLocked(leaving)
		}
		s.mu.Unlock()
	}
}

// beatLocked sets the timer that calls beat. It does nothing without acknowledgements, and if there is
// only one server, because the session could not move to another.
func (s *session) beatLocked() {
	every := s.c.c.Heartbeat
	if every < 0 || len(s.c.c.servers) < 2 || s.c.c.NoAck {
		return
	}
	if len(s.pending) > 0 { // the interval counts from the write of the oldest frame
		if rest := every - time.Since(s.pending[0].at); rest > 0 {
			every = rest
		}
	}
	if s.pulse == nil {
		s.pulse = time.AfterFunc(every, s.beat)
		return
	}
	s.pulse.Reset(every)
}

// beat checks the server if its oldest acknowledgement is overdue by Config.Heartbeat: it opens and
// closes a second connection. If that fails, the session ends with errNoBeat.
func (s *session) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx := s.l.Context()
	switch {
	case s.phase == over || ctx.Err() != nil:
		return
	case len(s.pending) == 0 || time.Since(s.pending[0].at) < s.c.c.Heartbeat:
		s.beatLocked()
		return
	}
	go func() {
		// A TCP connection alone would prove only that the kernel of the server works, so the
		// check includes TLS and the handshake.
		nc, err := s.c.dial(ctx, s.conn.index)
		if err == nil {
			nc.close()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.phase == over || ctx.Err() != nil:
		case err == nil || len(s.pending) == 0:
			s.beatLocked()
		default:
			s.enterLocked(over)
			s.failure = fmt.Errorf("%w: %w", errNoBeat, err)
			s.conn.readUntil(time.Now())
		}
	}()
}

// closeGrace is how long Close waits for the reader. Only a net.Conn of Config.Dial that ignores both
// its deadline and Close can make the reader take longer.
const closeGrace = 50 * time.Millisecond

// Close closes the connection, see [deliver.Session]. Batches without an answer stay unanswered: the
// outlet sends them again in the next session.
func (s *session) Close() {
	s.stop()
	s.mu.Lock()
	s.enterLocked(over)
	c := s.conn
	if s.pulse != nil {
		s.pulse.Stop()
	}
	s.mu.Unlock()
	c.interrupt()
	c.close()
	s.c.counts.add(func(st *Stats) { st.Server = "" })
	if s.done == nil {
		return
	}
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
	}
}

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

// phase is the state of a session, which determines how Send handles a batch.
//
//	begun ──▶ probing ──a message survived─▶ serving ──▶ leaving
//	  │ │         └──────its batch is sent──────│───────────▲ ▲
//	  │ └──the server keeps connections─────────▲           │ │
//	  └─────▶ oneBatch ──its batch is sent──────────────────┘ │
//	                     a better server, or another's turn ──┘
//
// A session enters over from every phase except begun: when the connection has ended, was idle or
// does not respond, and when the session is closed.
type phase uint8

const (
	begun    phase = iota // connected; nothing was sent
	probing               // the first message is a probe, see alone.go
	oneBatch              // one batch is sent, each message over a separate connection, see alone.go
	serving               // batches are pipelined
	leaving               // batches are refused; answers still arrive
	over                  // batches are refused; no answers arrive
)

// enterLocked sets the phase. The caller holds s.mu.
func (s *session) enterLocked(to phase) {
	if phaseEntered != nil && s.phase != to {
		phaseEntered(s, s.phase, to)
	}
	s.phase = to
}

// phaseEntered is a test hook.
var phaseEntered func(s *session, from, to phase)

// errLeft is the error for a batch that a session refuses.
var errLeft = errors.New("fluent: this session accepts no more records")

// A session uses one connection, see [deliver.Session].
type session struct {
	c    *Driver
	l    deliver.Life
	stop func() bool   // stops the call of giveUp after the context of l
	done chan struct{} // closed when the reader has ended; nil without one

	heard chan struct{} // receives a token after each acknowledgement and at the end of the reader

	retryPreferredAt time.Time // when better servers are tried; used by Send only
	rotateAt         time.Time // when the next weighted server is used; zero: not set; used by Send only

	mu               sync.Mutex // guards the fields below; no other lock is acquired while it is held
	phase            phase
	conn             *conn
	jobs             []*job // without an answer, in the order of Send
	pending          []sent // frames without an acknowledgement, in the order of writing
	base             uint64 // number of pending[0]
	byID             map[chunkID]uint64
	acked            bool        // a frame was acknowledged
	last             time.Time   // last use of the connection
	probingPreferred bool        // a better server is being tried
	pulse            *time.Timer // timer of heartbeats; nil without them
	sending          bool        // Send is running
	failure          error       // error of writing
	ended            bool        // the reader has ended
	why              error       // reason of ended
	spare            []*job
}

// A job is one batch in flight. session.mu guards its state.
type job struct {
	b       *batch.Batch
	lay     layout
	waiters []recordWaiter // callers that wait for records of b
	vec     [][]byte
	out     net.Buffers

	// Under session.mu:
	open    int  // number of frames without an acknowledgement
	writing bool // Send is responsible for the answer, not the reader
}

// sent is a frame that was written and has no acknowledgement.
type sent struct {
	j     *job // nil after the acknowledgement
	frame int
	id    chunkID
	at    time.Time
}

func newSession(c *Driver, l deliver.Life, nc *conn) *session {
	s := &session{c: c, l: l, conn: nc, retryPreferredAt: c.nextLook(), last: time.Now(), heard: make(chan struct{}, 1)}
	s.stop = context.AfterFunc(l.Context(), s.giveUp)
	switch {
	case !nc.keepalive:
		s.enter(oneBatch)
	case c.c.NoAck && !c.c.Auth.Secured: // a HELO would announce how long the server keeps a connection
		s.enter(probing)
	default:
		s.serve()
	}
	return s
}

func (s *session) enter(to phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enterLocked(to)
}

// serve begins pipelining.
func (s *session) serve() {
	s.done, s.byID = make(chan struct{}), map[chunkID]uint64{}
	s.mu.Lock()
	s.enterLocked(serving)
	s.deadlineLocked()
	s.beatLocked()
	s.mu.Unlock()
	go s.read()
}

// giveUp ends all waits of the session when the context of its Life has ended.
func (s *session) giveUp() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	c.interrupt()
}

// Send sends b, see [deliver.Session].
func (s *session) Send(b *batch.Batch) error {
	s.mu.Lock()
	ph := s.phase
	s.mu.Unlock()
	if ph >= leaving || s.l.Context().Err() != nil {
		return errLeft
	}
	j := s.job(b)
	if len(j.lay.frames) == 0 {
		s.answer(j)
		return nil
	}
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

// job divides b into frames.
func (s *session) job(b *batch.Batch) *job {
	s.mu.Lock()
	var j *job
	if n := len(s.spare); n > 0 {
		j, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		j = new(job)
	}
	s.mu.Unlock()
	j.b = b
	j.waiters = s.c.awaited.appendWaiters(j.waiters[:0], b)
	j.lay.cut(b, s.c.c, s.c.roster.sizes(s.conn.index, s.c.c.bounds()))
	if !s.c.c.NoAck {
		j.lay.name(b, s.c.seed, s.c.salt)
	}
	return j
}

// answer reports that the server accepted the frames of j.
func (s *session) answer(j *job) { s.report(j, nil) }

// report reports the outcome of j. A non-nil why is the reason for frames without an
// acknowledgement.
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

// register adds the frames of j, beginning with index from, to pending before they are written. It
// returns false if the session accepts no more frames.
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
		for _, used := s.byID[f.id]; used; _, used = s.byID[f.id] {
			f.id = f.id.next()
		}
		s.byID[f.id] = s.base + uint64(len(s.pending))
		s.pending = append(s.pending, sent{j: j, frame: i, id: f.id, at: s.last})
	}
	if idle {
		s.deadlineLocked()
	}
	return true
}

// deadlineLocked sets the deadline of the reader.
func (s *session) deadlineLocked() {
	var t time.Time
	switch {
	case s.phase == over || s.failure != nil:
		return // set by the caller that failed
	case len(s.pending) > 0:
		t = s.pending[0].at.Add(s.c.c.AckTimeout)
	case s.c.c.IdleTimeout > 0:
		t = s.last.Add(s.c.c.IdleTimeout)
	}
	s.conn.readUntil(t)
}

// readDeadlineAfter returns the time until which input is read after writing failed with err:
// the server may have sent a reason. If it only does not respond, there is no such input.
func readDeadlineAfter(err error) time.Time {
	if isMute(err) {
		return time.Now()
	}
	return time.Now().Add(200 * time.Millisecond)
}

// write writes the frames of a registered job, beginning with index from.
func (s *session) write(j *job, from int) {
	err := s.putInOrder(j, from)
	s.mu.Lock()
	s.last = time.Now()
	taken := !s.c.c.NoAck && j.open == 0 || s.c.c.NoAck && err == nil && !s.ended
	j.writing = taken // otherwise the reader answers the job
	switch {
	case err == nil:
	case !s.ended: // the reader ends the session after it has read the remaining input
		s.enterLocked(over)
		s.failure = err
		s.conn.readUntil(readDeadlineAfter(err))
	case isGone(err) && isGone(s.why): // the error of writing is more precise
		s.why = err
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
				if j.lay.frames[i].bytes > most { // the reader modifies only acked
					to = i + 1
					break
				}
			}
		}
		if err := s.put(j, from, to); err != nil {
			return err
		}
		if !s.c.c.NoAck && j.lay.frames[to-1].bytes > s.c.roster.proven(s.conn.index) && !s.waitAcked(end-to) {
			return nil
		}
		from = to
	}
	return nil
}

// waitAcked waits until only the last n frames, which are not written yet, have no acknowledgement.
// It returns false if the connection has ended before.
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

// hear wakes up waitAcked.
func (s *session) hear() {
	select {
	case s.heard <- struct{}{}:
	default:
	}
}

// read reads acknowledgements until the connection ends.
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
	if s.failure != nil && (err == errNoReason || isGone(err)) {
		s.why = s.failure // the error of writing is more precise
	}
	sending := s.sending
	s.mu.Unlock()
	s.hear()
	s.conn.interrupt()
	if !sending { // otherwise Send concludes it
		s.conclude()
	}
}

var (
	errIdle     = errors.New("it was unused for a while")
	errNoReason = errors.New("the server sent no reason")
)

// overdue returns the reason why the deadline of the reader passed, or nil if the deadline
// was moved.
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
	case len(s.jobs) > 0: // a write is in progress
		s.last = now
	case due(s.last, s.c.c.IdleTimeout):
		s.enterLocked(over)
		return errIdle
	}
	s.deadlineLocked()
	return nil
}

// ack records that the server accepted a frame.
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

// conclude ends the session. It is called by the last of the reader and Send to finish.
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

// end reports to the outlet that the session is over.
func (s *session) end(err error) {
	s.c.counts.add(func(st *Stats) { st.Server = "" })
	if errors.Is(err, errRefused) {
		err = batch.Fatal(err)
	}
	s.l.End(err)
}

// probePreferred starts an attempt to reach the preferred servers if it is due. If one is
// reachable, the session leaves.
func (s *session) probePreferred() {
	if s.retryPreferredAt.IsZero() || time.Now().Before(s.retryPreferredAt) || !s.c.roster.hasBetter(s.conn.index) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probingPreferred {
		return
	}
	s.probingPreferred, s.retryPreferredAt = true, s.c.nextLook()
	go func() {
		found := s.c.preferredReachable(s.l.Context(), s.conn.index)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.probingPreferred = false; found && s.phase == serving {
			s.enterLocked(leaving)
		}
	}()
}

// rotateEvery is how long a connection is used before another server has its turn.
const rotateEvery = 10 * time.Second

// rotateServers makes the session leave when another server has its turn.
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

// beatLocked starts a check of the session's server while the server owes an
// acknowledgement and another server is available: a second connection is opened and
// closed.
func (s *session) beatLocked() {
	every := s.c.c.Heartbeat
	if every < 0 || len(s.c.c.servers) < 2 || s.c.c.NoAck {
		return
	}
	if len(s.pending) > 0 { // the oldest frame must be overdue
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

// beat checks the server if a check is due.
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

// closeGrace is how long Close waits for a reader whose connection does not end.
const closeGrace = 50 * time.Millisecond

// Close closes the connection, see [deliver.Session].
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

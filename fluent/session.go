package fluent

import (
	"context"
	"errors"
	"fmt"
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
// From every phase except begun, a session enters the phase over when the connection has ended, was
// idle or does not respond, and when the session is closed.
type phase uint8

const (
	begun    phase = iota // connected; nothing was sent yet
	probing               // the first message will show whether the server keeps the connection open
	oneBatch              // one batch is sent; each message of it uses a separate connection
	serving               // batches are pipelined
	leaving               // Send accepts no batches; acknowledgements still arrive
	over                  // Send accepts no batches, and no acknowledgements arrive
)

// enterLocked is the only function that sets the phase. The caller holds s.mu.
func (s *session) enterLocked(to phase) {
	if phaseEntered != nil && s.phase != to {
		phaseEntered(s, s.phase, to)
	}
	s.phase = to
}

// phaseEntered is a test hook. It is called with s.mu held. Tests set it before any session begins.
var phaseEntered func(s *session, from, to phase)

// errLeft is the error that Send returns if the session accepts no more batches. Package deliver
// sends the batch in the next session.
var errLeft = errors.New("fluent: this session accepts no more records")

// A session uses one connection or, in phase oneBatch, one connection for each message. It
// implements [deliver.Session].
//
// Two goroutines use it. One goroutine of package deliver calls Send, which writes frames, and
// Close; these calls do not overlap. The other is the reader, started by serve. It handles
// acknowledgements and the end of the connection. A frame is registered in the field pending before
// it is written, so that the reader knows its id when the acknowledgement arrives.
type session struct {
	c    *Driver
	l    deliver.Life
	stop func() bool   // cancels the call of giveUp when the context of l ends
	done chan struct{} // closed when the reader has ended; nil before serve is called

	// progress receives a value after each acknowledgement and when the reader ends. It has a
	// buffer of one.
	progress chan struct{}

	// The following fields are used only by the goroutine that calls Send.
	retryPreferredAt time.Time // time at which preferred servers are tried; zero: never
	rotateAt         time.Time // time from which the next weighted server is used; zero: not set

	mu    sync.Mutex // guards the fields below; no other lock is acquired under it
	phase phase
	conn  *conn
	jobs  []*job // batches without an outcome, in the order of Send
	// pending contains the unacknowledged frames, in the order of writing. Frames are numbered from
	// 0. pending[i] has the number base+i, and byID maps ids to numbers.
	pending          []sent
	base             uint64
	byID             map[chunkID]uint64
	acked            bool        // the server has acknowledged at least one frame
	last             time.Time   // last use of the connection
	probingPreferred bool        // a goroutine is trying preferred servers
	heartbeat        *time.Timer // timer that calls checkServer; nil without heartbeats
	sending          bool        // Send is writing, so Send, not the reader, calls conclude
	failure          error       // error of writing, or of the check of the server
	ended            bool        // the reader has ended
	why              error       // error with which the reader has ended
	spareJobs        []*job      // jobs for reuse; at most Window+1
}

// newSession begins a session over nc. The handshake must be complete.
func newSession(c *Driver, l deliver.Life, nc *conn) *session {
	s := &session{c: c, l: l, conn: nc, retryPreferredAt: c.nextPreferredProbe(), last: time.Now(), progress: make(chan struct{}, 1)}
	s.stop = context.AfterFunc(l.Context(), s.giveUp)
	switch {
	case !nc.keepalive:
		s.enter(oneBatch)
	// Without HELO, the server may close the connection after one message.
	case c.c.NoAck && !c.c.Auth.Secured:
		s.enter(probing)
	default:
		s.serve()
	}
	return s
}

// enter acquires s.mu and calls enterLocked.
func (s *session) enter(to phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enterLocked(to)
}

// serve enters the phase serving, and starts the reader and the heartbeats.
func (s *session) serve() {
	s.done, s.byID = make(chan struct{}), map[chunkID]uint64{}
	s.mu.Lock()
	s.enterLocked(serving)
	s.deadlineLocked()
	s.scheduleHeartbeatLocked()
	s.mu.Unlock()
	go s.read()
}

// giveUp makes all operations on the connection fail. It is called when the context of s.l ends.
func (s *session) giveUp() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	c.interrupt()
}

// Send writes b. In the phase serving it returns before the acknowledgement. If no record of b can
// be sent, Send reports the outcome immediately. It implements [deliver.Session].
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
	// The phase cannot have changed since it was read, because only Send ends the phases before
	// serving.
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

// job returns the job for b, divided into frames. It reuses the memory of an earlier job if there
// is one.
func (s *session) job(b *batch.Batch) *job {
	s.mu.Lock()
	var j *job
	if n := len(s.spareJobs); n > 0 {
		j, s.spareJobs = s.spareJobs[n-1], s.spareJobs[:n-1]
	} else {
		j = new(job)
	}
	s.mu.Unlock()
	// Waiting calls of Post are matched with the records of b now, because the memory of b is valid
	// only until the outcome is reported.
	j.b = b
	j.waiters = s.c.awaited.appendWaiters(j.waiters[:0], b)
	j.lay.cut(b, s.c.c, s.c.roster.sizes(s.conn.index, s.c.c.bounds()))
	if !s.c.c.NoAck {
		j.lay.name(b, s.c.seed, s.c.salt)
	}
	return j
}

// answer reports to package deliver that the server has accepted all frames of j.
func (s *session) answer(j *job) { s.report(j, nil) }

// report reports the outcome of j to package deliver. If why is nil, all records except l.refused
// are delivered. If why is an error, it is the reason why the records of unacknowledged frames must
// be sent again. After report, the memory of the batch is not used, and j may be reused.
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
	// The waiting calls of Post receive their outcomes before package deliver updates the account.
	// Otherwise a Post could notice the new account and return before it has its outcome.
	s.c.awaited.settle(j.waiters, &o)
	b := j.b
	s.mu.Lock()
	if i := slices.Index(s.jobs, j); i >= 0 {
		s.jobs = slices.Delete(s.jobs, i, i+1)
	}
	j.b = nil
	clear(j.waiters)
	l.forget()
	if len(s.spareJobs) <= s.c.c.Window {
		s.spareJobs = append(s.spareJobs, j)
	}
	s.mu.Unlock()
	s.l.Answer(b, o)
}

// register adds the frames of j to pending, beginning with the frame that has the index from. It
// must be called before the frames are written, because an acknowledgement may arrive before the
// write returns. It returns false if the session accepts no more frames.
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
		// Two batches in flight may have equal contents, so their frames may have equal ids.
		for _, used := s.byID[f.id]; used; _, used = s.byID[f.id] {
			f.id = f.id.next()
		}
		s.byID[f.id] = s.base + uint64(len(s.pending))
		s.pending = append(s.pending, sent{j: j, frame: i, id: f.id, at: s.last})
	}
	if idle { // the deadline was set for IdleTimeout
		s.deadlineLocked()
	}
	return true
}

// deadlineLocked sets the read deadline. It is the end of AckTimeout of the oldest unacknowledged
// frame. If there is none, it is IdleTimeout after the last use. The caller holds s.mu.
func (s *session) deadlineLocked() {
	var t time.Time
	switch {
	case s.phase == over || s.failure != nil:
		return // the deadline was set together with phase or failure
	case len(s.pending) > 0:
		t = s.pending[0].at.Add(s.c.c.AckTimeout)
	case s.c.c.IdleTimeout > 0:
		t = s.last.Add(s.c.c.IdleTimeout)
	}
	s.conn.readUntil(t)
}

// finalRead is how long input is read after a failed write. By then, the reason that a server sends
// before it closes the connection has usually arrived.
const finalRead = 200 * time.Millisecond

// readDeadlineAfter returns the time until which input is read after writing has failed with err.
// If the server does not respond, no reason can arrive, so the time is now.
func readDeadlineAfter(err error) time.Time {
	if isUnresponsive(err) {
		return time.Now()
	}
	return time.Now().Add(finalRead)
}

// write writes the frames of a registered job, beginning with the frame that has the index from. If
// all of them are then acknowledged or, with NoAck, written, write reports the outcome. Otherwise
// the reader reports it later. After a failed write, the reader ends the session.
func (s *session) write(j *job, from int) {
	err := s.putInOrder(j, from)
	// Exactly one goroutine reports the outcome of j: this one if all frames are acknowledged,
	// otherwise the reader, after the last acknowledgement or when the connection ends.
	s.mu.Lock()
	s.last = time.Now()
	taken := !s.c.c.NoAck && j.open == 0 || s.c.c.NoAck && err == nil && !s.ended
	j.writing = taken // otherwise the reader reports the outcome
	switch {
	case err == nil:
	case !s.ended: // the reader reads until readDeadlineAfter and then ends the session
		s.enterLocked(over)
		s.failure = err
		s.conn.readUntil(readDeadlineAfter(err))
	case isGone(err) && isGone(s.why):
		// The error err is more precise than the reader's error, which is only the end of the
		// input.
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

// put writes the frames of j with indexes in [from, to) and counts them.
func (s *session) put(j *job, from, to int) error {
	n, err := s.conn.write(s.c.framer, j, from, to, s.c.c.WriteTimeout)
	s.c.counts.add(func(st *Stats) {
		st.Bytes += uint64(max(n, 0))
		if err == nil {
			st.Frames += uint64(to - from)
		}
	})
	return err
}

// putInOrder writes the frames of a registered job, beginning with the frame that has the index
// from. A server may discard a frame that is too large for it, and still accept the next frame of
// the same tag. Records would then arrive out of order. Therefore, if a frame is larger than any
// frame that the server has recently accepted, the next frame is not written before the
// acknowledgement of the larger frame.
func (s *session) putInOrder(j *job, from int) error {
	for end := len(j.lay.frames); from < end; {
		to := end
		if !s.c.c.NoAck {
			maxShared := s.c.roster.proven(s.conn.index)
			for i := from; i < end; i++ {
				// The field bytes is read without the lock, because the reader changes only the
				// field acked.
				if j.lay.frames[i].bytes > maxShared {
					to = i + 1
					break
				}
			}
		}
		if err := s.put(j, from, to); err != nil {
			return err
		}
		// The result of roster.proven may have changed during put, because the server may have
		// acknowledged frames.
		if !s.c.c.NoAck && j.lay.frames[to-1].bytes > s.c.roster.proven(s.conn.index) && !s.waitAcked(end-to) {
			return nil
		}
		from = to
	}
	return nil
}

// waitAcked waits until all written frames are acknowledged, or returns false if the connection has
// ended. n is the number of registered frames that are not yet written. Their AckTimeout begins
// when waitAcked returns.
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
		<-s.progress
	}
}

// notifyProgress wakes waitAcked. It never blocks.
func (s *session) notifyProgress() {
	select {
	case s.progress <- struct{}{}:
	default:
	}
}

// read is the function of the reader goroutine. It handles acknowledgements until the connection
// ends, or until overdue returns an error after a deadline.
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
	// If writing has failed, the error of writing is reported, unless the server has sent a reason.
	if s.failure != nil && (err == errNoReason || isGone(err)) {
		s.why = s.failure // the error of writing is more precise than the end of the input
	}
	sending := s.sending
	s.mu.Unlock()
	// Wake a Send that waits for an acknowledgement, and interrupt a Send that is writing.
	s.notifyProgress()
	s.conn.interrupt()
	if !sending { // otherwise write calls conclude
		s.conclude()
	}
}

// lose ends the session after its connection has ended because of err. It also updates the health
// of the server, unless package deliver has ended the session. jobs are the batches whose outcome
// is not yet reported. acked reports whether the server has acknowledged any frame.
func (s *session) lose(err error, jobs []*job, acked bool) {
	if s.l.Context().Err() == nil {
		s.updateHealth(err, jobs, acked)
	}
	s.fail(s.conn.lost(err, acked), jobs)
}

// fail ends the session with err. jobs are the batches whose outcome is not yet reported. If some
// frames of a batch are acknowledged, fail reports the outcome, so that only the remaining records
// are sent again. All other batches are sent again as a whole.
func (s *session) fail(err error, jobs []*job) {
	s.enter(over)
	if ctx := s.l.Context(); ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	for _, j := range jobs {
		if slices.ContainsFunc(j.lay.frames, func(f frame) bool { return f.acked }) {
			s.report(j, err)
		}
	}
	if len(jobs) > 0 {
		s.c.counts.add(func(st *Stats) { st.Lost, st.LastError = st.Lost+1, err.Error() })
	}
	s.end(err)
}

// updateHealth updates the health of the server after the end of the connection. The parameters are
// the same as in lose. The oldest unacknowledged frame may have been too large for the server.
func (s *session) updateHealth(err error, jobs []*job, acked bool) {
	i, r := s.conn.index, s.c.roster
	if len(jobs) > 0 && !s.c.c.NoAck {
		for k := range jobs[0].lay.frames {
			if f := &jobs[0].lay.frames[k]; !f.acked {
				r.noteEndedAt(i, f.bytes, f.to-f.from == 1, errors.Is(err, errNoAck))
				break
			}
		}
	}
	waiting := len(jobs) > 0
	if acked {
		r.recordAnswer(i)
	}
	switch {
	case isUnresponsive(err), waiting && !acked && !s.c.c.NoAck:
		r.recordSilence(i, s.c.c.ReconnectMax)
	case s.c.c.NoAck && isGone(err):
		r.recordEnd(i, time.Since(s.conn.opened))
		s.noteHangUp()
	}
}

// errHangUps is the error of the event "no-ack". It includes advice for the user.
var errHangUps = errors.New("without acknowledgements (NoAck, --no-ack), records counted as delivered may be lost: " +
	"use acknowledgements, unless this Forward server ends each connection after one message")

// noteHangUp is called when the server has ended the connection of a session with NoAck after data
// was written. It posts the event "no-ack" if the server has ended enough connections.
func (s *session) noteHangUp() {
	if s.c.roster.noteHangUp(s.conn.index, time.Since(s.conn.opened)) {
		s.c.reports.Post("no-ack", fmt.Errorf("fluent: %s ended %d connections in a row soon after they were opened; %w", s.conn.label, hangUps, errHangUps), 0)
	}
}

// errIdle and errNoReason are the errors with which overdue ends a session.
var (
	errIdle     = errors.New("it was unused for a while")
	errNoReason = errors.New("the server sent no reason")
)

// overdue is called when the reader's deadline has passed. It returns the reason to end the session
// or, if there is none, sets a new deadline and returns nil.
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
	case len(s.jobs) > 0: // Send is writing (with NoAck), so the connection is in use
		s.last = now
	case due(s.last, s.c.c.IdleTimeout):
		s.enterLocked(over)
		return errIdle
	}
	s.deadlineLocked()
	return nil
}

// ack is called when the server has acknowledged the frame with the given id. If no other frame of
// the batch is unacknowledged, ack reports the outcome. Servers may acknowledge frames in any
// order. An unknown id, which may be a second acknowledgement, is only counted.
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
	// Remove the acknowledged frames from the beginning of pending, so that the first frame of
	// pending determines the deadline.
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
	s.c.roster.noteAccepted(s.conn.index, size)
	s.notifyProgress()
	s.c.counts.add(func(st *Stats) { st.Acks++ })
	if whole {
		s.answer(e.j)
	}
}

// conclude ends the session. It is called once, after both the reader and Send have finished.
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

// end reports to package deliver that the session is over. After a normal end, err is nil. If the
// server rejected this client, the reported error is fatal.
func (s *session) end(err error) {
	s.c.counts.add(func(st *Stats) { st.Server = "" })
	if errors.Is(err, errRefused) {
		err = batch.Fatal(err)
	}
	s.l.End(err)
}

// probePreferred starts a goroutine that tries the preferred servers, if it is time to do so. If
// one of them is reachable, the session enters the phase leaving, and package deliver opens the
// next session.
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

// rotateEvery is how long a connection is used before the session moves to the next weighted
// server. Weights are therefore shares of time, not of records.
const rotateEvery = 10 * time.Second

// rotateServers makes the session enter the phase leaving after rotateEvery, if servers are
// weighted.
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

// scheduleHeartbeatLocked sets the timer that calls checkServer. It does nothing with NoAck, and
// nothing if there is only one server, because the session could not move. The caller holds s.mu.
func (s *session) scheduleHeartbeatLocked() {
	every := s.c.c.Heartbeat
	if every < 0 || len(s.c.c.servers) < 2 || s.c.c.NoAck {
		return
	}
	if len(s.pending) > 0 { // the interval counts from the time at which the oldest frame was written
		if rest := every - time.Since(s.pending[0].at); rest > 0 {
			every = rest
		}
	}
	if s.heartbeat == nil {
		s.heartbeat = time.AfterFunc(every, s.checkServer)
		return
	}
	s.heartbeat.Reset(every)
}

// checkServer checks the server if its oldest acknowledgement is overdue by Config.Heartbeat. It
// opens a second connection in another goroutine and closes it. If the server cannot be connected,
// the session ends with errNoHeartbeat.
func (s *session) checkServer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx := s.l.Context()
	switch {
	case s.phase == over || ctx.Err() != nil:
		return
	case len(s.pending) == 0 || time.Since(s.pending[0].at) < s.c.c.Heartbeat:
		s.scheduleHeartbeatLocked()
		return
	}
	go func() {
		// A TCP connection alone would only prove that the server's kernel works. Therefore the
		// check includes TLS and the handshake.
		nc, err := s.c.c.dial(ctx, s.conn.index)
		if err == nil {
			nc.close()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.phase == over || ctx.Err() != nil:
		case err == nil || len(s.pending) == 0:
			s.scheduleHeartbeatLocked()
		default:
			s.enterLocked(over)
			s.failure = fmt.Errorf("%w: %w", errNoHeartbeat, err)
			s.conn.readUntil(time.Now())
		}
	}()
}

// closeGrace is how long Close waits for the reader. The reader takes longer only if a net.Conn of
// Config.Dial ignores both its deadline and Close.
const closeGrace = 50 * time.Millisecond

// Close closes the connection. Batches whose outcome was not reported are sent again in the next
// session. It implements [deliver.Session].
func (s *session) Close() {
	s.stop()
	s.mu.Lock()
	s.enterLocked(over)
	c := s.conn
	if s.heartbeat != nil {
		s.heartbeat.Stop()
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

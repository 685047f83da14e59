package fluent

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// ErrClosed is wrapped by the error of what comes after Close. It wraps
// [batch.ErrClosed].
var ErrClosed = fmt.Errorf("fluent: %w", batch.ErrClosed)

var (
	errBehind = errors.New("fluent: a batch before it failed")
	errNoAck  = errors.New("no acknowledgement in time")
)

// A Client sends batches of Forward entries ([ContentType]) to a Fluentd, Fluent
// Bit or OpenTelemetry receiver. It is a [batch.AsyncSink]: batches are
// pipelined, and answered when the server has acknowledged them, or, with
// Config.NoAck, when they are written.
//
// It sends nothing twice by itself and holds nothing: retries, fallbacks and
// dead letters are the business of package deliver, in front of it. A batch that
// failed and is sent again keeps the ids of its chunks. Delivery is at least
// once: after a lost connection up to Window batches may arrive twice.
//
//	Start ─▶ queue ─▶ sender ──frames──▶ server
//	                                       │
//	done ◀──────────── reader ◀──acks──────┘
//
// Goroutines: the sender, started by the first Start, and a reader for each
// connection, which sees acknowledgements and the end of the connection at once;
// while a server further down the list is used, sometimes one that tries those
// before it. Close ends them all; those that a Config.Dial holds that heeds no context
// end with it.
//
// All methods may be called from several goroutines at once.
type Client struct {
	c    *resolved
	seed maphash.Seed
	salt uint64

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wake   chan struct{} // for the sender; capacity 1
	moved  chan struct{} // something pending was settled, for the sender; capacity 1
	ended  chan struct{} // closed when the sender has ended
	quiet  chan struct{} // nothing is under way, for Close; capacity 1
	beside sync.WaitGroup

	framer  *framer // the sender's
	awaited *awaited

	// mu guards the rest and what says so in conn and job. Nothing waits or
	// calls back under it; only awaited.mu is taken within.
	mu       sync.Mutex
	queue    []*job
	under    int    // jobs without an answer
	epoch    uint64 // grows with each failure
	untold   untold
	running  bool
	closed   bool
	conn     *conn // in use, or the last
	better   *conn // to a server before it, ready to be used
	trying   bool
	suspects map[chunkID]int // how many connections ended at a chunk
	spare    []*memory
	watches  []*watch
	stats    Stats
}

// Stats is a snapshot of a [Client].
type Stats struct {
	Server      string // in use; empty: none
	Connects    uint64
	Frames      uint64 // written
	Bytes       uint64 // written, frames and all
	Acks        uint64
	UnknownAcks uint64 // for no chunk that was waiting
	Lost        uint64 // connections that ended while something was waiting
	Refused     uint64 // records refused: too large, unknown tag, poison
	LastError   string
}

// A job is one batch under way. Client.mu guards what says so.
type job struct {
	ctx   context.Context
	b     *batch.Batch
	done  func(error)
	epoch uint64
	watch *watch      // over ctx; nil for parts
	stop  func() bool // ends that of a part
	part  bool        // of a job that is sent in parts

	mem *memory

	// Under Client.mu:
	conn     *conn // it was given to
	open     int   // frames without an answer
	writing  bool  // the sender reads b
	finished bool
	late     bool // it ended with failure while it was being written
	failure  error
	untold   bool // Client.untold counts it, in this row
	row      uint64
}

// memory is what a job needs while it is under way, for reuse.
type memory struct {
	lay layout
	vec [][]byte
	out net.Buffers
}

// NewClient returns a Client. It connects when there is something to send, so the server
// may come up later. The error names everything that is wrong with c.
func NewClient(c Config) (*Client, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return newClient(r), nil
}

func newClient(r *resolved) *Client {
	s := &Client{
		c: r, seed: maphash.MakeSeed(), salt: rand.Uint64(), framer: newFramer(r),
		wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), quiet: make(chan struct{}, 1),
		ended: make(chan struct{}), suspects: map[chunkID]int{}, awaited: newAwaited(),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Limits asks for batches of one frame.
func (s *Client) Limits() batch.Limits { return batch.Limits{Bytes: s.c.FrameBytes} }

// Window returns Config.Window.
func (s *Client) Window() int { return s.c.Window }

// Accepts reports whether t is [ContentType].
func (s *Client) Accepts(t string) bool { return t == ContentType }

// Dictionary returns [Tags].
func (s *Client) Dictionary() batch.Dictionary { return Tags() }

// Codec returns the codec of Forward entries, see [Codec].
func (s *Client) Codec() batch.Codec { return Codec() }

// Send sends b and waits for the answer.
func (s *Client) Send(ctx context.Context, b *batch.Batch) error { return batch.SendAsync(ctx, s, b) }

// Start sends b, see [batch.AsyncSink].
func (s *Client) Start(ctx context.Context, b *batch.Batch, done func(error)) {
	if b.Len() == 0 {
		done(nil)
		return
	}
	if err := ctx.Err(); err != nil {
		done(context.Cause(ctx))
		return
	}
	j := &job{ctx: ctx, b: b, done: done}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		done(ErrClosed)
		return
	}
	if !s.running {
		s.running = true
		go s.run()
	}
	s.under++
	if j.epoch = s.epoch; s.untold.behind(b) {
		j.epoch--
	}
	s.queue = append(s.queue, j)
	j.watch = s.watchLocked(ctx)
	j.watch.jobs = append(j.watch.jobs, j)
	s.mu.Unlock()
	if ctx.Err() != nil { // the watch may have looked before j was there
		s.abort(j)
	}
	signal(s.wake)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// A watch ends the jobs of one context when it ends. A producer comes with the
// same context each time, so that one watch does for many jobs.
type watch struct {
	ctx  context.Context // nil: for one job only
	stop func() bool
	jobs []*job // under Client.mu
}

// watchLocked returns the watch of ctx.
func (s *Client) watchLocked(ctx context.Context) *watch {
	comparable := reflect.TypeOf(ctx).Comparable()
	for _, w := range s.watches {
		if comparable && w.ctx == ctx {
			return w
		}
	}
	s.watches = slices.DeleteFunc(s.watches, func(w *watch) bool {
		return len(w.jobs) == 0 && w.stop() || w.ctx != nil && w.ctx.Err() != nil && len(w.jobs) == 0
	})
	w := new(watch)
	if comparable {
		w.ctx = ctx
	}
	w.stop = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		jobs := slices.Clone(w.jobs)
		s.mu.Unlock()
		for _, j := range jobs {
			s.abort(j)
		}
	})
	s.watches = append(s.watches, w)
	return w
}

// abort gives up a job whose ctx has ended.
func (s *Client) abort(j *job) {
	err := context.Cause(j.ctx)
	s.mu.Lock()
	if i := slices.Index(s.queue, j); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		fin := s.finishLocked(j, err)
		s.mu.Unlock()
		fin.give()
		return
	}
	c := j.conn
	if j.finished {
		c = nil
	}
	s.mu.Unlock()
	if c != nil {
		s.fail(c, err)
	}
}

// An answer is what is told the caller of Start, without mu.
type answer struct {
	s   *Client
	j   *job // nil: there is nothing to tell
	err error
}

func (a answer) give() {
	if a.j == nil {
		return
	}
	a.j.done(a.err)
	if a.j.untold {
		a.s.knows(a.j.row)
	}
}

// finishLocked ends a job with err. The answer it returns is to be given without
// mu.
func (s *Client) finishLocked(j *job, err error) answer {
	if j.finished {
		return answer{}
	}
	if err != nil && !j.part && !j.untold {
		j.untold, j.row = true, s.untold.note(j)
	}
	if j.writing {
		j.late, j.failure = true, err // b is still being read
		return answer{}
	}
	j.finished = true
	err = s.resultLocked(j, err)
	if !j.part {
		s.under--
		if s.under == 0 {
			signal(s.quiet)
		}
	}
	if j.stop != nil {
		j.stop()
	}
	if j.watch != nil {
		i := slices.Index(j.watch.jobs, j)
		j.watch.jobs = slices.Delete(j.watch.jobs, i, i+1)
	}
	if m := j.mem; m != nil {
		j.mem = nil
		m.lay.forget()
		clear(m.vec[:cap(m.vec)])
		if len(s.spare) <= s.c.Window {
			s.spare = append(s.spare, m)
		}
	}
	return answer{s, j, err}
}

// resultLocked returns what the caller of Start is told. Of each tag the frames
// up to the first without acknowledgement are settled: what comes behind it must
// be sent again behind it.
func (s *Client) resultLocked(j *job, err error) error {
	if j.mem == nil {
		return err
	}
	l := &j.mem.lay
	if err == nil {
		if len(l.refused) > 0 {
			s.stats.Refused += uint64(len(l.refused))
			s.awaited.settled(j.b, l.refused)
			s.awaited.refused(j.b, l.refused, l.why)
			return batch.Reject(l.why, slices.Clone(l.refused)...)
		}
		s.awaited.settled(j.b, nil)
		return nil
	}
	if l.named {
		return err
	}
	open := slices.Clone(l.refused)
	for i := range l.frames {
		f := &l.frames[i]
		if f.acked && i > 0 && l.frames[i-1].stream == f.stream && !l.frames[i-1].acked {
			f.acked = false
		}
		if !f.acked {
			open = l.indexes(open, f)
		}
	}
	if len(open) == j.b.Len() {
		return err
	}
	slices.Sort(open)
	s.awaited.settled(j.b, open)
	return batch.Partial(err, open...)
}

// finish is finishLocked without mu.
func (s *Client) finish(j *job, err error) {
	s.mu.Lock()
	fin := s.finishLocked(j, err)
	s.mu.Unlock()
	fin.give()
}

// failed notes a failure: what is queued behind it is not sent.
func (s *Client) failed(j *job, err error) {
	s.mu.Lock()
	if j.finished {
		s.mu.Unlock()
		return
	}
	if !j.part {
		s.epoch++
	}
	s.stats.LastError = err.Error()
	fin := s.finishLocked(j, err)
	s.mu.Unlock()
	fin.give()
}

// untold are failures of which the caller of Start may not know yet: what it starts
// meanwhile is behind them.
type untold struct {
	n     int
	first uint64 // ticket of the first record that failed
	row   uint64 // grows when the caller has shown that it knows
}

// note begins the telling of the failure of j, which [Client.knows] ends with what it
// returns.
func (u *untold) note(j *job) (row uint64) {
	if first := j.b.First(); u.n == 0 || first < u.first {
		u.first = first
	}
	u.n++
	return u.row
}

// behind reports whether b is started by a caller that does not know. One that starts
// again what has failed does.
func (u *untold) behind(b *batch.Batch) bool {
	if u.n == 0 || b.First() > u.first {
		return u.n > 0
	}
	u.n = 0
	u.row++
	return false
}

// knows ends what untold.note began.
func (s *Client) knows(row uint64) {
	s.mu.Lock()
	if s.untold.row == row {
		s.untold.n--
	}
	s.mu.Unlock()
}

// run is the sender.
func (s *Client) run() {
	defer close(s.ended)
	for {
		s.mu.Lock()
		var j *job
		if len(s.queue) > 0 {
			j = s.queue[0]
			s.queue = slices.Delete(s.queue, 0, 1)
		}
		epoch := s.epoch
		s.mu.Unlock()
		switch {
		case j == nil:
			select {
			case <-s.wake:
			case <-s.ctx.Done():
				s.flushQueue()
				return
			}
		case s.ctx.Err() != nil:
			s.finish(j, ErrClosed)
		case j.epoch < epoch:
			s.finish(j, errBehind)
		default:
			s.process(j)
		}
	}
}

// flushQueue ends what was started and not sent before Close.
func (s *Client) flushQueue() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.mu.Unlock()
			return
		}
		j := s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		fin := s.finishLocked(j, ErrClosed)
		s.mu.Unlock()
		fin.give()
	}
}

// process sends one job.
func (s *Client) process(j *job) {
	s.prepare(j)
	if len(j.mem.lay.frames) == 0 {
		s.finish(j, nil)
		return
	}
	if !s.c.NoAck && s.suspicious(j) {
		s.interrogate(j)
		return
	}
	s.transmit(j)
}

// prepare lays out the frames of j.
func (s *Client) prepare(j *job) {
	s.mu.Lock()
	if n := len(s.spare); n > 0 {
		j.mem, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		j.mem = new(memory)
	}
	s.mu.Unlock()
	l := &j.mem.lay
	l.cut(j.b, s.c)
	if !s.c.NoAck {
		l.name(j.b, s.seed, s.salt)
	}
}

// maxTries is how many connections in a row may end before a job is written.
const maxTries = 3

var errTries = errors.New("fluent: connections end as soon as they are made")

// transmit puts the frames of j on a connection. The reader, or failure, ends j.
func (s *Client) transmit(j *job) {
	for tries := 0; ; tries++ {
		c, err := s.connection(j.ctx)
		if err == nil && tries == maxTries { // they end before anything is written
			s.mu.Lock()
			err = c.err
			s.mu.Unlock()
			if err == nil {
				err = errTries
			}
		}
		if err != nil {
			s.failed(j, err)
			return
		}
		if !c.keepalive && len(j.mem.lay.frames) > 1 {
			s.oneByOne(j)
			return
		}
		if s.register(c, j) {
			s.write(c, j)
			return
		}
	}
}

// Close waits until everything that was started has its answer, or ctx ends, and
// closes the connection. What has no answer by then gets an error. It may be
// called twice, and beside Start.
func (s *Client) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	running := s.running
	s.mu.Unlock()
	var err error
	for err == nil {
		s.mu.Lock()
		under := s.under
		s.mu.Unlock()
		if under == 0 || s.ctx.Err() != nil {
			break
		}
		select {
		case <-s.quiet:
		case <-ctx.Done():
			err = fmt.Errorf("fluent: close: %d batches without an answer: %w", under, context.Cause(ctx))
		}
	}
	signal(s.quiet) // for another Close
	s.cancel()
	s.mu.Lock()
	watches := s.watches
	s.watches = nil
	s.mu.Unlock()
	defer func() {
		for _, w := range watches {
			w.stop()
		}
	}()
	s.mu.Lock()
	conns := []*conn{s.conn, s.better}
	s.mu.Unlock()
	for _, c := range conns {
		if c != nil {
			s.fail(c, ErrClosed)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if running {
			<-s.ended
			s.mu.Lock()
			c := s.conn // one that was made meanwhile
			s.mu.Unlock()
			if c != nil {
				s.fail(c, ErrClosed)
			}
		}
		s.beside.Wait()
	}()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C: // Config.Dial, or what it returned, heeds nothing
		if err == nil {
			err = fmt.Errorf("fluent: close: a connection does not end: %w", context.Cause(ctx))
		}
	}
	return err
}

// closeGrace is how long Close waits, after its time is over, for goroutines that were
// told to end.
const closeGrace = 50 * time.Millisecond

// Stats returns a snapshot. It does not wait for the server.
func (s *Client) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	if s.conn != nil && !s.conn.dead {
		st.Server = s.conn.label
	}
	return st
}

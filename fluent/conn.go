package fluent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// A conn is one connection. Client.mu guards what says so.
type conn struct {
	nc        net.Conn
	raw       net.Conn // below TLS
	label     string   // of the server
	index     int      // of the server
	keepalive bool     // false: the server closes after one message
	vectors   bool     // writev works
	read      []byte   // what the handshake read beyond its end

	gone chan struct{} // closed when it is dead

	// Under Client.mu:
	pending []sent // in the order written
	base    uint64 // number of the first
	byID    map[chunkID]uint64
	acked   bool // something was
	used    bool // something was written
	probed  bool // what is maybe bad was written
	dead    bool
	err     error     // why
	judged  bool      // the sender has seen that
	looked  time.Time // when a server before it was tried, or it was opened
	last    time.Time // when it was used
}

// sent is a frame that waits for its answer.
type sent struct {
	j     *job // nil once it has it
	frame int
	id    chunkID
	at    time.Time
}

// connection returns a connection that is alive.
func (s *Client) connection(ctx context.Context) (*conn, error) {
	for {
		s.mu.Lock()
		c, better := s.conn, s.better
		switch {
		case c == nil || c.dead:
			if c != nil && !c.judged && len(s.c.servers) > 1 && !s.c.NoAck {
				c.judged = true
				switch srv := s.c.servers[c.index]; {
				case c.acked:
					srv.mute = 0
				case c.used && !c.probed: // it takes connections, but nothing else
					srv.silent(c.err, s.c.ReconnectMax)
				}
			}
			s.mu.Unlock()
			return s.connect(ctx)
		case !c.keepalive && c.used: // the server is about to close it
			s.mu.Unlock()
			select {
			case <-c.gone:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-s.ctx.Done():
				return nil, ErrClosed
			}
		case better != nil && len(c.pending) > 0: // it is left when all is answered
			s.mu.Unlock()
			select {
			case <-s.moved:
			case <-c.gone:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-s.ctx.Done():
				return nil, ErrClosed
			}
		case better != nil:
			s.better = nil
			alive := !better.dead
			if alive {
				s.conn = better
			}
			s.mu.Unlock()
			if alive {
				s.fail(c, errReplaced)
			}
		default:
			if c.index > 0 && s.c.Failback > 0 && !s.trying && time.Since(c.looked) >= s.c.Failback {
				c.looked = time.Now()
				if before := s.promising(c.index); len(before) > 0 {
					s.trying = true
					s.beside.Add(1)
					go s.lookBack(before)
				}
			}
			s.mu.Unlock()
			return c, nil
		}
	}
}

var errReplaced = errors.New("replaced by a connection to a preferred server")

// connect connects to the first server that can be connected to.
func (s *Client) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(ErrClosed) })()
	var errs []error
	var soonest time.Time
	refused := true
	// First those that are not known to be down, then those of which only that is
	// known that they acknowledge nothing.
	tried := make([]bool, len(s.c.servers))
	for _, shaky := range [...]bool{false, true} {
		for i, srv := range s.c.servers {
			if tried[i] || time.Now().Before(srv.until) && !(shaky && srv.shaky) {
				continue
			}
			tried[i] = true
			c, err := s.dial(ctx, i)
			if err == nil {
				if !shaky {
					srv.worked()
				}
				s.adopt(c)
				return c, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			srv.failed(err, s.c.ReconnectMin, s.c.ReconnectMax)
		}
	}
	for _, srv := range s.c.servers {
		errs = append(errs, srv.err)
		refused = refused && errors.Is(srv.err, ErrRefused)
		if soonest.IsZero() || srv.until.Before(soonest) {
			soonest = srv.until
		}
	}
	err := errors.Join(errs...)
	if refused {
		return nil, batch.Fatal(err)
	}
	return nil, batch.RetryAfter(err, max(0, time.Until(soonest)))
}

// adopt makes c the connection in use.
func (s *Client) adopt(c *conn) {
	s.mu.Lock()
	s.conn = c
	s.stats.Connects++
	closed := s.ctx.Err() != nil
	s.mu.Unlock()
	s.beside.Add(1)
	go s.reader(c)
	if closed {
		s.fail(c, ErrClosed)
	}
}

// promising returns the servers before the one with that index, but for those that
// are passed over because they acknowledge nothing.
func (s *Client) promising(index int) (before []int) {
	now := time.Now()
	for i, srv := range s.c.servers[:index] {
		if srv.mute == 0 || !now.Before(srv.until) {
			before = append(before, i)
		}
	}
	return before
}

// lookBack tries these servers.
func (s *Client) lookBack(before []int) {
	defer s.beside.Done()
	var found *conn
	for _, i := range before {
		if c, err := s.dial(s.ctx, i); err == nil {
			found = c
			break
		}
	}
	s.mu.Lock()
	s.trying = false
	if found != nil {
		s.stats.Connects++
		s.better = found
	}
	closed := s.ctx.Err() != nil
	s.mu.Unlock()
	if found == nil {
		return
	}
	s.beside.Add(1)
	go s.reader(found)
	if closed {
		s.fail(found, ErrClosed)
	}
	signal(s.moved)
}

// dial connects to a server, TLS and handshake included.
func (s *Client) dial(ctx context.Context, index int) (_ *conn, err error) {
	srv := s.c.servers[index]
	fail := func(what string, err error) (*conn, error) {
		if isRefusal(err) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return nil, fmt.Errorf("fluent: cannot %s %s: %w", what, srv.label, err)
	}
	dctx, cancel := context.WithTimeoutCause(ctx, s.c.DialTimeout, fmt.Errorf("no connection within %s", s.c.DialTimeout))
	defer cancel()
	nc, err := s.c.Dial(dctx, srv.network, srv.address)
	if err != nil {
		return fail("connect to", cause(dctx, err))
	}
	defer func() {
		if err != nil {
			nc.Close()
		}
	}()
	hctx, cancel := context.WithTimeoutCause(ctx, s.c.HandshakeTimeout, fmt.Errorf("not finished within %s", s.c.HandshakeTimeout))
	defer cancel()
	c := &conn{
		nc: nc, raw: nc, label: srv.label, index: index, keepalive: true, gone: make(chan struct{}),
		byID: map[chunkID]uint64{}, looked: time.Now(), last: time.Now(),
	}
	if srv.tls {
		conf := s.c.tls
		if conf.ServerName == "" {
			conf = conf.Clone()
			conf.ServerName = srv.host
		}
		t := tls.Client(nc, conf)
		if err := t.HandshakeContext(hctx); err != nil {
			return fail("begin TLS with", cause(hctx, err))
		}
		c.nc = t
	} else {
		switch nc.(type) {
		case *net.TCPConn, *net.UnixConn:
			c.vectors = true
		}
	}
	if !s.c.Secured {
		return c, nil
	}
	deadline, _ := hctx.Deadline()
	c.nc.SetDeadline(deadline)
	stop := context.AfterFunc(hctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	h := &handshaker{nc: c.nc, hostname: s.c.Hostname, key: s.c.credentials.key, user: s.c.User, password: s.c.credentials.password}
	c.keepalive, err = h.do()
	c.read = h.in
	stopped := stop()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-hctx.Done() // its deadline is the same
	}
	if err != nil {
		return fail("authenticate with", cause(hctx, err))
	}
	if !stopped {
		return fail("authenticate with", context.Cause(hctx))
	}
	c.nc.SetDeadline(time.Time{})
	return c, nil
}

// cause returns why ctx ended, if that is why err came.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, os.ErrDeadlineExceeded)) {
		return context.Cause(ctx)
	}
	return err
}

// isRefusal reports whether only another configuration will help.
func isRefusal(err error) bool {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	return errors.As(err, &cert) || errors.As(err, &op) && op.Op == "remote error"
}

// isGone reports whether err says that the other side closed the connection.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// register notes that the frames of j are about to be written to c. It reports
// false if c is dead.
func (s *Client) register(c *conn, j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.dead {
		return false
	}
	now := time.Now()
	j.conn, j.writing = c, true
	frames := j.mem.lay.frames
	j.open = len(frames)
	for i := range frames {
		f := &frames[i]
		f.acked = false
		if s.c.NoAck {
			if c.keepalive {
				continue
			}
		} else {
			for _, used := c.byID[f.id]; used; _, used = c.byID[f.id] {
				f.id = f.id.next()
			}
		}
		c.byID[f.id] = c.base + uint64(len(c.pending))
		c.pending = append(c.pending, sent{j: j, frame: i, id: f.id, at: now})
	}
	c.used, c.last = true, now
	c.probed = c.probed || j.part
	c.deadlineLocked(s.c)
	return true
}

// deadlineLocked sets until when the reader waits.
func (c *conn) deadlineLocked(r *resolved) {
	var t time.Time
	switch {
	case len(c.pending) > 0:
		t = c.pending[0].at.Add(r.AckTimeout)
	case r.IdleTimeout > 0:
		t = c.last.Add(r.IdleTimeout)
	}
	c.nc.SetReadDeadline(t)
}

// write writes the frames of j.
func (s *Client) write(c *conn, j *job) {
	m := j.mem
	m.vec = m.vec[:0]
	c.nc.SetWriteDeadline(time.Now().Add(s.c.WriteTimeout))
	var err error
	var n int64
	if j.ctx.Err() != nil {
		err = context.Cause(j.ctx)
	} else if c.vectors && s.framer.zip == nil && m.lay.order == nil {
		n, err = s.writeVectors(c, j)
	} else {
		var k int
		k, err = s.framer.whole(&m.lay, j.b, c.nc.Write)
		n = int64(k)
	}
	frames := len(m.lay.frames)

	s.mu.Lock()
	j.writing = false
	s.stats.Bytes += uint64(max(n, 0))
	if err == nil {
		s.stats.Frames += uint64(frames)
	}
	c.last = time.Now()
	var fin answer
	switch {
	case !s.c.NoAck && j.open == 0: // all of it was acknowledged meanwhile
		fin = s.finishLocked(j, nil)
	case j.late && (err == nil || j.failure != nil): // the connection ended meanwhile
		fin = s.finishLocked(j, j.failure)
	case err == nil && s.c.NoAck && c.keepalive:
		fin = s.finishLocked(j, nil)
	}
	s.mu.Unlock()
	fin.give()
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) && j.ctx.Err() == nil {
			err = fmt.Errorf("the server did not read a batch within %s", s.c.WriteTimeout)
		}
		s.fail(c, err)
		s.failed(j, s.lost(c, err)) // without acks it is in no list
	}
}

// writeVectors writes frames from where their records lie.
func (s *Client) writeVectors(c *conn, j *job) (int64, error) {
	m := j.mem
	size := 0
	for i := range m.lay.frames {
		size += maxHead + len(m.lay.frames[i].tag)
	}
	lent, _ := scratch.Get(size)
	defer scratch.Put(lent)
	buf := lent[:0] // has room for all of it: it must not move
	add := func(p []byte) { m.vec = append(m.vec, p) }
	for i := range m.lay.frames {
		f := &m.lay.frames[i]
		at := len(buf)
		buf = s.framer.head(buf, f, f.bytes)
		add(buf[at:len(buf):len(buf)])
		m.lay.pieces(j.b, f, add)
		at = len(buf)
		buf = s.framer.tail(buf, f)
		add(buf[at:len(buf):len(buf)])
	}
	m.out = m.vec // which WriteTo eats up
	return m.out.WriteTo(c.nc)
}

// lost is the error of what waits on a connection that ended because of err.
func (s *Client) lost(c *conn, err error) error {
	if errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("closed by the server")
	}
	refusal := isRefusal(err) && !c.acked || errors.Is(err, ErrRefused)
	if refusal && !errors.Is(err, ErrRefused) {
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	err = fmt.Errorf("fluent: lost the connection to %s: %w", c.label, err)
	if refusal {
		return batch.Fatal(err)
	}
	return err
}

// fail ends a connection because of err, and with it everything that waits on it
// for an answer.
func (s *Client) fail(c *conn, err error) {
	s.mu.Lock()
	if c.dead {
		s.mu.Unlock()
		return
	}
	c.dead = true
	close(c.gone)
	after := s.lost(c, err)
	c.err = after
	var jobs []*job
	for i := range c.pending {
		if e := &c.pending[i]; e.j != nil && (len(jobs) == 0 || jobs[len(jobs)-1] != e.j) {
			jobs = append(jobs, e.j)
		}
	}
	oneShot := s.c.NoAck && !c.keepalive && (errors.Is(err, io.EOF) || errors.Is(err, errNoAck))
	if len(jobs) > 0 && !oneShot {
		if !jobs[0].part {
			s.epoch++
		}
		s.stats.Lost++
		s.stats.LastError = after.Error()
		if !errors.Is(err, ErrClosed) && jobs[0].ctx.Err() == nil {
			first := &c.pending[0]
			s.suspectLocked(first.j, &first.j.mem.lay.frames[first.frame])
		}
	}
	c.pending = nil
	clear(c.byID)
	fins := make([]answer, 0, len(jobs))
	for _, j := range jobs {
		result := after
		if oneShot {
			result = nil
		}
		fins = append(fins, s.finishLocked(j, result))
	}
	s.mu.Unlock()
	c.close()
	for _, fin := range fins {
		fin.give()
	}
	signal(s.moved)
}

// farewell is how long TLS may take to say goodbye to a peer that does not read.
const farewell = 200 * time.Millisecond

func (c *conn) close() {
	if c.nc != c.raw {
		t := time.AfterFunc(farewell, func() { c.raw.Close() })
		defer t.Stop()
	}
	c.nc.Close()
}

// reader reads acknowledgements until the connection ends.
func (s *Client) reader(c *conn) {
	defer s.beside.Done()
	buf := append(make([]byte, 0, 1024), c.read...)
	c.read = nil
	s.mu.Lock()
	if !c.dead {
		c.deadlineLocked(s.c)
	}
	s.mu.Unlock()
	var err error
	for {
		if buf, err = s.consume(c, buf); err != nil {
			s.fail(c, err)
			return
		}
		buf = slices.Grow(buf, 512)
		n, rerr := c.nc.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if rerr == nil || n > 0 {
			continue
		}
		if errors.Is(rerr, os.ErrDeadlineExceeded) {
			if rerr = s.overdue(c); rerr == nil {
				continue
			}
		}
		s.fail(c, rerr)
		return
	}
}

var errIdle = errors.New("not used for a while")

// overdue says why the reader's deadline passed, nil if it was moved meanwhile.
func (s *Client) overdue(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(c.pending) > 0 {
		if now.Sub(c.pending[0].at) >= s.c.AckTimeout {
			return fmt.Errorf("%w (%s)", errNoAck, s.c.AckTimeout)
		}
	} else if s.c.IdleTimeout > 0 && now.Sub(c.last) >= s.c.IdleTimeout {
		return errIdle
	}
	c.deadlineLocked(s.c)
	return nil
}

// consume takes the messages at the beginning of buf.
func (s *Client) consume(c *conn, buf []byte) ([]byte, error) {
	rest := buf
	for len(rest) > 0 {
		next, err := msgpack.Skip(rest)
		if err == msgpack.ErrShort {
			if len(rest) > maxMessage {
				return buf, fmt.Errorf("the server's message is longer than %d bytes", maxMessage)
			}
			break
		}
		if err != nil {
			return buf, errors.New("what the server says is not the Forward protocol")
		}
		id, ok, err := parseAck(rest[:len(rest)-len(next)])
		if err != nil {
			return buf, err
		}
		if ok {
			s.ack(c, id)
		}
		rest = next
	}
	return append(buf[:0], rest...), nil
}

// parseAck reads {"ack": id}. It reports false for an id that cannot be one of
// ours.
func parseAck(msg []byte) (id chunkID, ok bool, err error) {
	t, msg, err := msgpack.Next(msg)
	if err == nil && t.Kind == msgpack.Array && t.Len > 0 {
		if w, _, err := msgpack.Next(msg); err == nil && w.Text() && string(w.Bytes) == "HELO" {
			return id, false, fmt.Errorf("%w: it asks for a handshake: set Config.SharedKey, or Secured if the key is empty (--shared-key-file, --secured)", ErrRefused)
		}
	}
	if err != nil || t.Kind != msgpack.Map {
		return id, false, errors.New("what the server says is no acknowledgement")
	}
	for range t.Len {
		var k msgpack.Token
		if k, msg, err = msgpack.Next(msg); err != nil || !k.Text() {
			return id, false, errors.New("what the server says is no acknowledgement")
		}
		value := msg
		if msg, err = msgpack.Skip(msg); err != nil {
			return id, false, err
		}
		if string(k.Bytes) == "ack" {
			v, _, _ := msgpack.Next(value)
			ok = v.Text() && copy(id[:], v.Bytes) == len(id) && len(v.Bytes) == len(id)
		}
	}
	return id, ok, nil
}

// ack notes that the server has taken a frame.
func (s *Client) ack(c *conn, id chunkID) {
	s.mu.Lock()
	no, known := c.byID[id]
	if !known {
		s.stats.UnknownAcks++
		s.mu.Unlock()
		return
	}
	delete(c.byID, id)
	e := c.pending[no-c.base]
	c.pending[no-c.base].j = nil
	c.acked = true
	c.last = time.Now()
	s.stats.Acks++
	e.j.mem.lay.frames[e.frame].acked = true
	s.clearLocked(e.j, &e.j.mem.lay.frames[e.frame])
	e.j.open--
	n := 0
	for n < len(c.pending) && c.pending[n].j == nil {
		n++
	}
	if n > 0 {
		c.pending = slices.Delete(c.pending, 0, n)
		c.base += uint64(n)
		c.deadlineLocked(s.c)
	}
	var fin answer
	if e.j.open == 0 && !e.j.writing {
		fin = s.finishLocked(e.j, nil)
	}
	over := !c.keepalive && len(c.pending) == 0
	s.mu.Unlock()
	fin.give()
	signal(s.moved)
	if over {
		s.fail(c, io.EOF) // the server is about to close it
	}
}

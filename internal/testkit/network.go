package testkit

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// A Network connects the clients and servers of a test in memory with net.Pipe. A write returns
// when the peer has read its bytes, so the number of received bytes is known exactly. The zero
// value is ready for use.
type Network struct {
	mu    sync.Mutex
	peers map[string]*Peer
	dials int
	wrap  func(net.Conn) net.Conn
}

// Dial connects to the peer at address. If no peer listens there, the connection is refused.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dials++
	p, wrap := n.peers[address], n.wrap
	n.mu.Unlock()
	if p == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	select {
	case p.accept <- server:
		if wrap != nil {
			return wrap(client), nil
		}
		return client, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Dials returns the number of connection attempts.
func (n *Network) Dials() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// Wrap sets a function that wraps the client's end of every later connection. See [Faulty].
func (n *Network) Wrap(wrap func(net.Conn) net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wrap = wrap
}

// Behaviour specifies how a peer handles a connection. The zero value reads everything.
type Behaviour struct {
	// Limit is the number of bytes after which the peer resets the connection; 0 means no limit.
	Limit int
	// Chunk is the number of bytes per read; 0 means all available bytes.
	Chunk int
	// Delay is the time to wait before each read.
	Delay time.Duration
	// If Stall is not nil, the peer does not reset the connection after Limit bytes. Instead it
	// stops reading until Stall is closed.
	Stall <-chan struct{}
	// Reply is written to the client before the peer reads. It may be a greeting that the client
	// does not expect, or garbage.
	Reply []byte
}

// A Peer is the server's end of connections. It stores the data that it reads, by connection.
type Peer struct {
	n      *Network
	addr   string
	accept chan net.Conn
	closed chan struct{}
	done   chan struct{} // closed when the accepting goroutine has ended

	mu    sync.Mutex
	next  func(conn int) Behaviour
	conns []net.Conn
	got   [][]byte
	wg    sync.WaitGroup
}

// Listen starts a peer at address. next(i) returns the behavior for its i-th connection. If next is
// nil, the peer reads everything.
func (n *Network) Listen(address string, next func(conn int) Behaviour) *Peer {
	p := &Peer{n: n, addr: address, next: next, accept: make(chan net.Conn), closed: make(chan struct{}), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.peers == nil {
		n.peers = map[string]*Peer{}
	}
	n.peers[address] = p
	go p.run()
	return p
}

func (p *Peer) run() {
	defer close(p.done)
	for {
		select {
		case c := <-p.accept:
			p.mu.Lock()
			i := len(p.conns)
			p.conns = append(p.conns, c)
			p.got = append(p.got, nil)
			var b Behaviour
			if p.next != nil {
				b = p.next(i)
			}
			p.mu.Unlock()
			p.wg.Go(func() { p.serve(i, c, b) })
		case <-p.closed:
			return
		}
	}
}

func (p *Peer) serve(i int, c net.Conn, b Behaviour) {
	defer c.Close()
	if len(b.Reply) > 0 {
		if _, err := c.Write(b.Reply); err != nil {
			return
		}
	}
	size := b.Chunk
	if size == 0 {
		size = 64 << 10
	}
	buf := make([]byte, size)
	total := 0
	for {
		if b.Delay > 0 {
			time.Sleep(b.Delay)
		}
		want := len(buf)
		if b.Limit > 0 {
			want = min(want, b.Limit-total)
		}
		if want == 0 {
			if b.Stall == nil {
				return
			}
			<-b.Stall
			b.Limit, want = 0, len(buf)
		}
		n, err := c.Read(buf[:want])
		total += n
		p.mu.Lock()
		p.got[i] = append(p.got[i], buf[:n]...)
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Close refuses further connections and resets existing ones, as if the server process had ended.
// It may be called twice.
func (p *Peer) Close() {
	p.n.mu.Lock()
	if p.n.peers[p.addr] == p {
		delete(p.n.peers, p.addr)
	}
	p.n.mu.Unlock()
	p.mu.Lock()
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	<-p.done
	p.wg.Wait()
}

// Got returns the data read, by connection.
func (p *Peer) Got() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([][]byte, len(p.got))
	for i := range p.got {
		out[i] = append([]byte(nil), p.got[i]...)
	}
	return out
}

// Conns returns the number of connections that the peer has accepted.
func (p *Peer) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Fault is the outcome of a Write on a faulty connection.
type Fault struct {
	// Accepted is the number of bytes that Write writes before it returns Err. If Err is nil, Write
	// writes all bytes.
	Accepted int
	// Err is the error that Write returns.
	Err error
	// If Stall is not nil, Write waits until it is closed, the write deadline passes, or the
	// connection is closed.
	Stall <-chan struct{}
	// If Drip is not 0, Write writes one byte at a time, after waiting for Drip.
	Drip time.Duration
	// Reset closes the connection after Accepted bytes.
	Reset bool
}

// Faulty wraps a connection. plan returns the Fault for each Write, given its index and its data.
func Faulty(c net.Conn, plan func(write int, p []byte) Fault) net.Conn {
	return &faultyConn{Conn: c, plan: plan, gone: make(chan struct{})}
}

type faultyConn struct {
	net.Conn
	plan func(int, []byte) Fault
	gone chan struct{}
	once sync.Once

	mu       sync.Mutex
	writes   int
	deadline time.Time
	changed  chan struct{} // closed when the deadline changes
}

// Close closes the connection and ends a stalled Write.
func (c *faultyConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// SetWriteDeadline sets the deadline of writes, including stalled ones.
func (c *faultyConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	c.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline sets the deadlines of reads and writes.
func (c *faultyConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetWriteDeadline(t), c.SetReadDeadline(t))
}

// Write writes p according to the plan.
func (c *faultyConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	i := c.writes
	c.writes++
	c.mu.Unlock()
	f := c.plan(i, p)
	if f.Stall != nil {
		if err := c.stall(f.Stall); err != nil {
			return 0, err
		}
	}
	take := len(p)
	if f.Err != nil || f.Reset {
		take = min(f.Accepted, len(p))
	}
	done := 0
	for done < take {
		end := take
		if f.Drip > 0 {
			end = done + 1
			time.Sleep(f.Drip)
		}
		n, err := c.Conn.Write(p[done:end])
		done += n
		if err != nil {
			return done, err
		}
	}
	if f.Reset {
		_ = c.Close()
		if f.Err == nil {
			f.Err = syscall.ECONNRESET
		}
	}
	return done, f.Err
}

// stall waits until release is closed, the write deadline passes, or the connection is closed.
func (c *faultyConn) stall(release <-chan struct{}) error {
	for {
		c.mu.Lock()
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed, deadline := c.changed, c.deadline
		c.mu.Unlock()
		var over <-chan time.Time
		var t *time.Timer
		if !deadline.IsZero() {
			t = time.NewTimer(time.Until(deadline))
			over = t.C
		}
		var err error
		again := false
		select {
		case <-release:
		case <-over:
			err = context.DeadlineExceeded
		case <-c.gone:
			err = net.ErrClosed
		case <-changed:
			again = true
		}
		if t != nil {
			t.Stop()
		}
		if !again {
			return err
		}
	}
}

// RandomFaults returns a plan for Faulty. With probability p, a Write fails, writes byte by byte,
// or ends in a reset.
func RandomFaults(roll func() float64, pick func(n int) int, p float64) func(int, []byte) Fault {
	return func(_ int, data []byte) Fault {
		if roll() >= p {
			return Fault{}
		}
		switch pick(3) {
		case 0:
			return Fault{Accepted: pick(len(data) + 1), Err: syscall.EPIPE}
		case 1:
			return Fault{Accepted: pick(len(data) + 1), Reset: true}
		default:
			return Fault{Drip: time.Millisecond}
		}
	}
}

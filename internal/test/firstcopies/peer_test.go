package firstcopies

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// A listener is a server on the loopback interface. It can go down with all its connections, and
// come up again at the same address.
type listener struct {
	tr    *walkRound
	addr  string
	serve func(c *net.TCPConn, r *rand.Rand)
	// serial means that the server handles one connection at a time. Protocols without
	// acknowledgements require this.
	serial bool

	mu     sync.Mutex
	ln     net.Listener
	conns  map[*net.TCPConn]bool
	closed bool
	wg     sync.WaitGroup
}

// listen starts a server, which is closed at the end of the round. serve handles one connection,
// and may use it until serve returns.
func (tr *walkRound) listen(serial bool, serve func(c *net.TCPConn, r *rand.Rand)) *listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tr.Fatal(err)
	}
	l := &listener{tr: tr, addr: ln.Addr().String(), serial: serial, serve: serve, conns: map[*net.TCPConn]bool{}}
	l.accept(ln)
	tr.atEnd(l.close)
	return l
}

func (l *listener) accept(ln net.Listener) {
	l.ln = ln
	l.wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			c, r := nc.(*net.TCPConn), l.tr.fork()
			l.mu.Lock()
			if l.ln != ln { // down was called meanwhile
				l.mu.Unlock()
				c.Close()
				return
			}
			l.conns[c] = true
			l.wg.Add(1)
			l.mu.Unlock()
			ended := make(chan struct{})
			go func() {
				defer l.wg.Done()
				defer close(ended)
				l.serve(c, r)
				c.Close()
				l.mu.Lock()
				delete(l.conns, c)
				l.mu.Unlock()
			}()
			if l.serial {
				<-ended
			}
		}
	})
}

// down closes the listener and calls end for each of its connections.
func (l *listener) down(end func(*net.TCPConn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ln == nil {
		return
	}
	l.ln.Close()
	l.ln = nil
	for c := range l.conns {
		end(c)
	}
}

// up listens again after down.
func (l *listener) up() {
	if l.serial {
		l.mu.Lock()
		isDown := l.ln == nil
		l.mu.Unlock()
		if isDown {
			l.wg.Wait()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ln != nil || l.closed {
		return
	}
	for end := time.Now().Add(maxWait); ; time.Sleep(time.Millisecond) {
		ln, err := net.Listen("tcp", l.addr)
		if err == nil {
			l.accept(ln)
			return
		}
		if time.Now().After(end) {
			l.tr.led.report(other, "the server does not come up: %v", err)
			return
		}
	}
}

// drain closes all connections and waits until serve has returned for each of them. After that, no
// copies arrive over these connections.
func (l *listener) drain() {
	l.down(func(c *net.TCPConn) { c.Close() })
	l.wg.Wait()
	l.up()
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.down(func(c *net.TCPConn) { c.Close() })
	l.wg.Wait()
}

// reset closes a connection with a TCP reset.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// endings are the ways in which a server ends a connection.
var endings = []func(*net.TCPConn){reset, func(c *net.TCPConn) { c.Close() }, func(c *net.TCPConn) { c.CloseWrite(); c.Close() }}

func end(c *net.TCPConn, r *rand.Rand) { endings[r.IntN(len(endings))](c) }

// outages takes servers down and up again until end is called.
type outages struct {
	stop chan struct{}
	wg   sync.WaitGroup
}

// startOutages takes one of the listeners down about once per period, for at most a quarter of the
// period.
func (tr *walkRound) startOutages(period time.Duration, ls ...*listener) *outages {
	w := &outages{stop: make(chan struct{})}
	r := tr.fork()
	w.wg.Go(func() {
		for {
			l := ls[r.IntN(len(ls))]
			if !w.sleep(time.Duration(r.Int64N(int64(2 * period)))) {
				return
			}
			l.down(func(c *net.TCPConn) { end(c, r) })
			ok := w.sleep(time.Duration(r.Int64N(int64(period)/4 + 1)))
			l.up()
			if !ok {
				return
			}
		}
	})
	return w
}

func (w *outages) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.stop:
		return false
	}
}

// end stops the outages and returns when all servers are up.
func (w *outages) end() {
	close(w.stop)
	w.wg.Wait()
}

// A client can connect to a listener after it was down, at the same address, but not while it is
// down.
func TestListenerRestartsAtSameAddress(t *testing.T) {
	tr := &walkRound{T: t, forks: rand.New(rand.NewPCG(1, 1)), led: newLedger()}
	l := tr.listen(false, func(c *net.TCPConn, _ *rand.Rand) { c.Read(make([]byte, 1)) })
	defer l.close()
	for range 3 {
		c, err := net.Dial("tcp", l.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		l.down(reset)
		if c, err := net.Dial("tcp", l.addr); err == nil {
			c.Close()
			t.Fatal("the listener is down and accepts connections")
		}
		l.up()
	}
	if len(tr.led.defects) > 0 {
		t.Error(tr.led.defects)
	}
}

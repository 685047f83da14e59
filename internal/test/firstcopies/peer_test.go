package firstcopies

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// A listener is a server's address on the loopback device. It may go down, with all its
// connections, and come up again at the same address.
type listener struct {
	tr    *trial
	addr  string
	serve func(c *net.TCPConn, r *rand.Rand)
	// serial serves a connection when those before it have ended. A peer needs it
	// whose protocol has no acknowledgements.
	serial bool

	mu     sync.Mutex
	ln     net.Listener
	conns  map[*net.TCPConn]bool
	closed bool
	wg     sync.WaitGroup
}

// listen starts a server. serve owns a connection until it returns. The listener ends
// with the round.
func (tr *trial) listen(serial bool, serve func(c *net.TCPConn, r *rand.Rand)) *listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tr.Fatal(err)
	}
	l := &listener{tr: tr, addr: ln.Addr().String(), serial: serial, serve: serve, conns: map[*net.TCPConn]bool{}}
	l.accept(ln)
	tr.later(l.close)
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
			if l.ln != ln { // it went down meanwhile
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

// down ends the listener and its connections as end says.
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

// up listens again.
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
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		ln, err := net.Listen("tcp", l.addr)
		if err == nil {
			l.accept(ln)
			return
		}
		if time.Now().After(end) {
			l.tr.led.fell(other, "the server does not come up: %v", err)
			return
		}
	}
}

// drain ends all connections. When it returns, nothing comes of them any more.
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

// reset ends a connection with a RST.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// endings are the ways in which a peer ends a connection.
var endings = []func(*net.TCPConn){reset, func(c *net.TCPConn) { c.Close() }, func(c *net.TCPConn) { c.CloseWrite(); c.Close() }}

func end(c *net.TCPConn, r *rand.Rand) { endings[r.IntN(len(endings))](c) }

// A weather takes servers down and up again until calm is called.
type weather struct {
	stop chan struct{}
	wg   sync.WaitGroup
}

// storm takes one of ls down about every period, for a tenth of it or so.
func (tr *trial) storm(period time.Duration, ls ...*listener) *weather {
	w := &weather{stop: make(chan struct{})}
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

func (w *weather) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.stop:
		return false
	}
}

// calm returns when all servers are up.
func (w *weather) calm() {
	close(w.stop)
	w.wg.Wait()
}

// A server that was down is reached at the same address.
func TestListener(t *testing.T) {
	tr := &trial{T: t, forks: rand.New(rand.NewPCG(1, 1)), led: newLedger()}
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
			t.Fatal("it is down and takes connections")
		}
		l.up()
	}
	if len(tr.led.falls) > 0 {
		t.Error(tr.led.falls)
	}
}

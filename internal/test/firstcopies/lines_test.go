package firstcopies

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/netsink"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// A linePeer is a server that receives lines over TCP. The protocol has no acknowledgements, so
// data in the buffers of the kernel is lost when the server resets a connection.
type linePeer struct {
	tr       *walkRound
	l        *listener
	good     atomic.Bool
	death    int  // average number of bytes after which a connection ends; 0: never
	graceful bool // before closing a connection, the server reads everything that the client has written
	slow     bool
}

func (p *linePeer) start() { p.l = p.tr.listen(true, p.serve) }

func (p *linePeer) serve(c *net.TCPConn, r *rand.Rand) {
	defer p.tr.led.failed()
	left := -1
	if p.death > 0 && !p.good.Load() {
		left = r.IntN(2 * p.death)
	}
	buf := make([]byte, 1+r.IntN(16<<10))
	var in []byte
	for {
		want := len(buf)
		if left >= 0 && p.good.Load() {
			left = -1
		}
		if left >= 0 {
			if want = min(want, left); want == 0 {
				if !p.graceful {
					end(c, r)
					return
				}
				c.CloseWrite() // the client sees the end of the stream, while the server reads the rest
				left, want = -1, len(buf)
			}
		}
		if p.slow && !p.good.Load() && r.IntN(100) == 0 {
			time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
		}
		n, err := c.Read(buf[:want])
		if left >= 0 {
			left -= n
		}
		for in = append(in, buf[:n]...); ; {
			line, rest, whole := bytes.Cut(in, []byte("\n"))
			if !whole {
				break // an incomplete line at the end of the connection is no copy
			}
			in = rest
			p.tr.led.arriveText(string(line))
		}
		if n == 0 && err != nil {
			return
		}
	}
}

// readAll waits until the server has read all connections to the end. For this, it opens another
// connection, which the server handles last.
func (p *linePeer) readAll() {
	p.good.Store(true)
	c, err := net.DialTimeout("tcp", p.l.addr, maxWait)
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(maxWait))
		c.(*net.TCPConn).CloseWrite()
		_, err = c.Read(make([]byte, 1))
	}
	if err != io.EOF {
		p.tr.led.report(other, "a connection does not end: %v", err)
	}
}

// A lineWalk selects the faults of a walk with a server of lines.
type lineWalk struct {
	records  int
	resets   bool // connections are reset at any byte; data in the buffers of the kernel is lost
	graceful bool // connections end without loss
	cuts     bool // writes fail after a part of the data; nothing is lost
	restarts bool // the server restarts; lines are lost as with resets
	spool    bool
	slow     bool
}

func (lw lineWalk) run(tr *walkRound) (uint64, int) {
	r := tr.rng
	keys := []string{"a", "b", "c"}[:1+r.IntN(3)]
	p := &linePeer{tr: tr, graceful: lw.graceful, slow: lw.slow}
	if lw.resets || lw.graceful {
		p.death = 500 << r.IntN(7)
	}
	p.start()
	var faults *outages
	if lw.restarts {
		faults = tr.startOutages(8*time.Millisecond, p.l)
	}
	cuts, odds := tr.fork(), 5+r.IntN(100)
	var mu sync.Mutex
	to, err := netsink.New(netsink.Config{
		Address: "tcp://" + p.l.addr,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil || !lw.cuts {
				return c, err
			}
			return testkit.Faulty(c, func(_ int, p []byte) (f testkit.Fault) {
				mu.Lock()
				defer mu.Unlock()
				if cuts.IntN(odds) == 0 {
					f.Accepted, f.Reset = cuts.IntN(len(p)+1), true
				}
				return f
			}), nil
		},
	})
	if err != nil {
		tr.Fatal(err)
	}
	do := deliver.Options{Retry: retry(), Breaker: tr.breaker()}
	so := slab.Options{
		SlabBytes: 512 << r.IntN(8), SlabCount: 2 + r.IntN(8), FlushInterval: time.Duration(1+r.IntN(3)) * time.Millisecond,
		WhenFull: slab.Block(),
	}
	if lw.spool {
		s, err := diskqueue.Open(tr.dir(), &spool.Options{OnEvent: quiet})
		if err != nil {
			tr.Fatal(err)
		}
		defer s.Close()
		outputhook.SetSpill(&do, s)
		if r.IntN(2) == 0 {
			so.WhenFull = slab.Spill()
		}
	}
	w, err := deliver.NewOutput(to, &deliver.OutputOptions{Slab: so, Deliver: do, OnError: quiet})
	if err != nil {
		tr.Fatal(err)
	}
	longest := 40 + r.IntN(200)
	tr.callers(keys, lw.records, func(r *rand.Rand, key string, n int) bool {
		if _, err := w.Write([]byte(label(key, n, r.IntN(longest)) + "\n")); err != nil {
			tr.led.report(other, "Write: %v", err)
			return false
		}
		return true
	})
	if faults != nil {
		faults.end()
	}
	p.good.Store(true)
	ctx, cancel := minute()
	defer cancel()
	for err := w.Flush(ctx); err != nil; err = w.Flush(ctx) { // Flush fails while the circuit is open
		if ctx.Err() != nil {
			tr.led.report(other, "Flush: %v", err)
			break
		}
		time.Sleep(time.Millisecond)
	}
	rep, err := w.Shutdown(ctx)
	a := rep.Account
	p.readAll()
	if err != nil && (lw.resets || lw.restarts) && a.Pending.Total() == 0 {
		err = nil // error of the last connection, which failed
	}
	tr.ended(a, err)
	if lw.resets || lw.restarts { // without acknowledgements, a lost connection loses lines
		return uint64(lw.records), 1
	}
	return a.Dropped.Total(), 1
}

// A server resets connections at any byte and restarts. The first copies of lines arrive in order.
func TestLinesKeepOrder(t *testing.T) {
	for name, w := range map[string]lineWalk{
		"good":     {records: 5000, slow: true},
		"graceful": {records: 5000, graceful: true},
		"cuts":     {records: 5000, graceful: true, cuts: true},
		"resets":   {records: 5000, resets: true, slow: true},
		"restarts": {records: 5000, restarts: true, slow: true},
		"spool":    {records: 5000, graceful: true, cuts: true, slow: true, spool: true},
		"all":      {records: 5000, resets: true, restarts: true, cuts: true, slow: true, spool: true},
	} {
		play(t, name, 2, w.run)
	}
}

package firstcopies

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// A forwardPeer is a Forward server that fails at random until good is set.
type forwardPeer struct {
	tr   *walkRound
	as   string // key of all records of a program; if empty, the label of each record contains its key
	good atomic.Bool
	l    *listener

	// Each of these fields is the frequency of a fault: one in this many. 0: never.
	deathAt   int // average number of bytes after which a connection ends
	death     int // the connection ends after a message
	spares    int // number of messages at the start of a connection during which it does not end
	lateAck   int // one in this many acks is sent at once; the others are delayed, so they arrive out of order
	silence   int // the server stops reading and answering after a message
	slowness  int // the server delays its answer to a message
	ackAfter  time.Duration
	silenceOf atomic.Int32 // number of further times that the server may stop answering
	poison    *poison
}

// A poison is a record that ends the connection on which it arrives, for a limited number of times.
type poison struct {
	mu   sync.Mutex
	key  string
	n    int // number of the record; -1: not yet written
	left int
}

// endsConnection reports whether record n of key ends the connection. If so, it decrements left.
func (p *poison) endsConnection(key string, n int) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.key != key || p.n != n || p.left == 0 {
		return false
	}
	p.left--
	return true
}

func (p *forwardPeer) start() { p.l = p.tr.listen(false, p.serve) }

func (p *forwardPeer) rolls(r *rand.Rand, n int) bool {
	return n > 0 && !p.good.Load() && r.IntN(n) == 0
}

// serve handles one connection.
func (p *forwardPeer) serve(c *net.TCPConn, r *rand.Rand) {
	defer p.tr.led.failed() // either end may have closed the connection
	left := -1              // number of bytes until the connection ends; -1: no limit
	if p.deathAt > 0 && !p.good.Load() {
		left = r.IntN(2 * p.deathAt)
	}
	var in []byte
	var mu sync.Mutex // guards writes to c
	var acks sync.WaitGroup
	defer acks.Wait()
	buf := make([]byte, 1+r.IntN(8<<10))
	spares := p.spares
	for {
		raw, rest, err := cutValue(in)
		if err != nil {
			return
		}
		if raw == nil {
			want := len(buf)
			if left >= 0 {
				if p.good.Load() {
					left = -1
				} else if want = min(want, left); want == 0 {
					end(c, r)
					return
				}
			}
			n, err := c.Read(buf[:want])
			if left >= 0 {
				left -= n
			}
			if in = append(in, buf[:n]...); n == 0 && err != nil {
				return
			}
			continue
		}
		in = rest
		m, err := testkit.ParseForward(raw)
		if err != nil {
			p.tr.led.report(other, "%v", err)
			return
		}
		if p.poisoned(m) {
			end(c, r)
			return
		}
		dies := spares == 0 && p.rolls(r, p.death)
		spares = max(0, spares-1)
		if !dies || r.IntN(2) == 0 {
			p.recordArrivals(m)
		}
		if dies {
			end(c, r)
			return
		}
		if p.rolls(r, p.silence) && p.silenceOf.Add(-1) >= 0 {
			for _, err := c.Read(buf); err == nil; _, err = c.Read(buf) { // until the client closes the connection
			}
			return
		}
		if p.rolls(r, p.slowness) {
			time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
		}
		ack := msgpack.AppendStr(msgpack.AppendStr(msgpack.AppendMapHeader(nil, 1), "ack"), m.Chunk)
		if p.good.Load() || p.lateAck == 0 || r.IntN(p.lateAck) == 0 {
			mu.Lock()
			_, err = c.Write(ack)
			mu.Unlock()
			if err != nil {
				return
			}
			continue
		}
		acks.Add(1)
		time.AfterFunc(time.Duration(r.Int64N(int64(p.ackAfter))), func() {
			defer acks.Done()
			mu.Lock()
			defer mu.Unlock()
			c.Write(ack)
		})
	}
}

// cutValue splits b after its first MessagePack value. If b does not contain a complete value,
// value is nil.
func cutValue(b []byte) (value, rest []byte, err error) {
	switch rest, err = msgpack.Skip(b); err {
	case nil:
		return b[:len(b)-len(rest)], rest, nil
	case msgpack.ErrShort:
		return nil, b, nil
	}
	return nil, nil, err
}

// texts calls f with the field m of each record in the message.
func texts(m *testkit.ForwardMessage, f func(text string)) {
	for _, e := range m.Entries {
		_, b, err := msgpack.Next(e)
		if err == nil {
			b, err = msgpack.Skip(b) // the time
		}
		if err == nil {
			_, b, err = msgpack.Next(b) // the map
		}
		for err == nil && len(b) > 0 {
			var key, value msgpack.Token
			if key, b, err = msgpack.Next(b); err != nil {
				break
			}
			if string(key.Bytes) != "m" {
				b, err = msgpack.Skip(b)
				continue
			}
			if value, b, err = msgpack.Next(b); err == nil {
				f(string(value.Bytes))
			}
		}
	}
}

func (p *forwardPeer) recordArrivals(m *testkit.ForwardMessage) {
	texts(m, func(text string) {
		if key, n, err := readLabel(text); err != nil || p.as == "" {
			p.tr.led.arriveText(text)
		} else if key == "in" {
			p.tr.led.arrive(p.as, n)
		}
	})
}

func (p *forwardPeer) poisoned(m *testkit.ForwardMessage) (yes bool) {
	if p.good.Load() {
		return false
	}
	texts(m, func(text string) {
		if key, n, err := readLabel(text); err == nil && p.poison.endsConnection(key, n) {
			yes = true
		}
	})
	return yes
}

// A forwardWalk selects the faults and options of a walk with Forward servers.
type forwardWalk struct {
	records  int
	deaths   bool // connections end within messages and after messages
	late     bool // acks arrive late and out of order
	silences int  // number of times that each server stops answering
	restarts bool
	servers  int
	spool    bool
	crash    bool // crash-safe slabs
	poison   bool
	gzip     bool
	window   int // window of the client; 0: random, 1 to 32
}

// event is the type of the posted records.
type event struct {
	M string `msg:"m"`
}

func (fw forwardWalk) run(tr *walkRound) (uint64, int) {
	r := tr.rng
	keys := []string{"a", "b", "c"}[:1+r.IntN(3)]
	c := fluent.Config{
		Tag: "forebay", Window: 1 << r.IntN(6), FrameBytes: 256 << r.IntN(5),
		AckTimeout: 30 * time.Millisecond, WriteTimeout: 10 * time.Second,
		ReconnectMin: time.Millisecond, ReconnectMax: 3 * time.Millisecond, Failback: 10 * time.Millisecond,
	}
	o := deliver.OutputOptions{
		Slab:         slab.Options{SlabBytes: 512 << r.IntN(5), FlushInterval: time.Duration(1+r.IntN(3)) * time.Millisecond, WhenFull: slab.Block()},
		CloseTimeout: maxWait, Deliver: deliver.Options{Retry: retry(), Breaker: tr.breaker(), HandlerFirst: true}, OnError: quiet,
	}
	if fw.silences == 0 {
		c.AckTimeout = 10 * time.Second
	}
	if fw.window > 0 {
		c.Window = fw.window
	}
	o.BufferBytes = o.Slab.SlabBytes * (2 + r.IntN(8))
	if fw.spool {
		o.SpoolDir = tr.dir()
		o.Slab.WhenFull = []slab.WhenFull{slab.Block(), slab.Spill()}[r.IntN(2)]
	}
	if fw.crash {
		o.CrashDir = tr.dir()
	}
	if fw.gzip {
		c.Compress = "gzip"
	}
	var poisoning *poison
	if fw.poison {
		poisoning = &poison{key: keys[0], n: -1, left: 2 + r.IntN(10)}
	}
	var peers []*forwardPeer
	var ls []*listener
	for range max(1, fw.servers) {
		p := &forwardPeer{tr: tr, poison: poisoning, slowness: []int{0, 0, 50}[r.IntN(3)], ackAfter: time.Millisecond}
		p.silenceOf.Store(int32(fw.silences))
		if fw.deaths {
			p.death = 5 + r.IntN(50)
			p.deathAt = c.FrameBytes * (3 + r.IntN(50))
		}
		if fw.late {
			p.lateAck = 1 + r.IntN(5)
		}
		if fw.silences > 0 {
			p.silence = 20
		}
		p.start()
		peers, ls = append(peers, p), append(ls, p.l)
		c.Servers = append(c.Servers, p.l.addr)
	}
	var faults *outages
	if fw.restarts {
		faults = tr.startOutages(8*time.Millisecond, ls...)
	}
	endFaults := func() {
		if faults != nil {
			faults.end()
		}
		for _, p := range peers {
			p.good.Store(true)
		}
	}
	lives := 1
	if fw.spool || fw.crash {
		lives += r.IntN(3)
	}
	longest := 40 + r.IntN(200)
	records := min(fw.records, 300+c.Window*c.FrameBytes) // few records, because delivery with a small window is slow
	poisoned := records / 2 / len(keys)
	var dropped uint64
	for life := 1; ; life++ {
		l := open(tr, func() (*fluent.Logger, error) {
			return fluent.NewLogger(c, forebay.Delivery(func(to *deliver.OutputOptions) { *to = o }))
		})
		if life <= lives {
			tr.callers(keys, records/lives, func(r *rand.Rand, key string, n int) bool {
				if poisoning != nil && key == poisoning.key && n == poisoned {
					tr.led.excuse(key, n)
					poisoning.mu.Lock()
					poisoning.n = n
					poisoning.mu.Unlock()
				}
				if err := l.Post(key, event{label(key, n, r.IntN(longest))}); err != nil {
					tr.led.report(other, "Post: %v", err)
					return false
				}
				return true
			})
		}
		ctx, cancel := minute()
		if life == lives {
			endFaults()
		} else if life < lives { // Close with a short timeout, perhaps while all servers are down
			ctx, cancel = context.WithTimeout(ctx, shortCloseTimeout)
			if r.IntN(2) == 0 {
				for _, l := range ls {
					l.down(reset)
				}
			}
		}
		_, err := l.Close(ctx)
		cancel()
		for _, l := range ls {
			l.up()
		}
		a := l.Account()
		dropped += a.Dropped.Total()
		if poisoning == nil && a.Dropped.Total() > 0 {
			tr.led.report(missing, "dropped: %v", a)
		}
		if a.Check() == nil && (life < lives || a.Pending.Spill > 0 && a.Pending.Spill == a.Pending.Total() && life < lives+100) {
			continue // if the circuit is open, Close leaves the spool to the next logger
		}
		tr.ended(a, err)
		break
	}
	// The shortest entry has about 30 bytes.
	return dropped, c.Window * (c.FrameBytes/30 + 1)
}

// Forward servers reset connections, restart, and acknowledge late and out of order. The first
// copies of each tag's records arrive in order.
func TestForwardKeepsOrder(t *testing.T) {
	play(t, "good", 1, forwardWalk{records: 2500}.run)
	play(t, "late", 1, forwardWalk{records: 2500, late: true}.run)
	for name, w := range map[string]forwardWalk{
		"resets":   {records: 2500, deaths: true, late: true},
		"silent":   {records: 2500, deaths: true, late: true, silences: 5},
		"restarts": {records: 2500, deaths: true, late: true, restarts: true, gzip: true},
		"failover": {records: 2500, deaths: true, late: true, restarts: true, servers: 2},
		"spool":    {records: 2500, deaths: true, late: true, restarts: true, spool: true},
		"crash":    {records: 2000, deaths: true, late: true, restarts: true, crash: true},
		"poison":   {records: 2500, deaths: true, late: true, poison: true},
		"all":      {records: 2500, deaths: true, late: true, silences: 1, restarts: true, servers: 2, spool: true, poison: true},
	} {
		play(t, name, 1, w.run)
		w.window, w.records = 1, w.records/3
		play(t, name+"/window1", 1, w.run)
	}
}

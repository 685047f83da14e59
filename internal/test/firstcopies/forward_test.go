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

// A forwardPeer is a Fluentd that misbehaves until it is told to be good.
type forwardPeer struct {
	tr   *trial
	as   string // the key of what it gets from a program; empty: records have theirs
	good atomic.Bool
	l    *listener

	// What it does, one in so many times; 0: never.
	deathAt   int // in the middle of so many bytes on average, a connection ends
	death     int // a message ends the connection
	spares    int // messages of each connection that do not
	lateAck   int // of so many acks all but one are late, so that they come in any order
	silence   int // a message after which nothing is read or said
	slowness  int // a message that takes its time
	ackAfter  time.Duration
	silenceOf atomic.Int32 // how many silences are left
	poison    *poison
}

// A poison is a record that ends connections until it has done so often enough.
type poison struct {
	mu   sync.Mutex
	key  string
	n    int // its number; -1: not made yet
	left int
}

// strikes reports whether the text of a record is the poison, and strikes once more.
func (p *poison) strikes(key string, n int) bool {
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

// serve serves one connection.
func (p *forwardPeer) serve(c *net.TCPConn, r *rand.Rand) {
	defer p.tr.led.failed() // whoever ended it
	left := -1              // bytes until it ends
	if p.deathAt > 0 && !p.good.Load() {
		left = r.IntN(2 * p.deathAt)
	}
	var in []byte
	var mu sync.Mutex // of writes to c
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
			p.tr.led.fell(other, "%v", err)
			return
		}
		if p.poisoned(m) {
			end(c, r)
			return
		}
		dies := spares == 0 && p.rolls(r, p.death)
		spares = max(0, spares-1)
		if !dies || r.IntN(2) == 0 {
			p.take(m)
		}
		if dies {
			end(c, r)
			return
		}
		if p.rolls(r, p.silence) && p.silenceOf.Add(-1) >= 0 {
			for _, err := c.Read(buf); err == nil; _, err = c.Read(buf) { // until the client has had enough
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

// cutValue cuts the first value off b, nil if it is not complete.
func cutValue(b []byte) (value, rest []byte, err error) {
	switch rest, err = msgpack.Skip(b); err {
	case nil:
		return b[:len(b)-len(rest)], rest, nil
	case msgpack.ErrShort:
		return nil, b, nil
	}
	return nil, nil, err
}

// texts calls f with the text of each record of ours in m.
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

func (p *forwardPeer) take(m *testkit.ForwardMessage) {
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
		if key, n, err := readLabel(text); err == nil && p.poison.strikes(key, n) {
			yes = true
		}
	})
	return yes
}

// A forwardWalk says what one walk to Forward servers has of what can happen.
type forwardWalk struct {
	records  int
	deaths   bool // connections end in the middle of messages, and after them
	late     bool // acks come late and out of order
	silences int  // how often a server falls silent
	restarts bool
	servers  int
	spool    bool
	crash    bool // crash-safe slabs
	poison   bool
	gzip     bool
	window   int // 0: 1 to 32
}

// event is a record as it is posted.
type event struct {
	M string `msg:"m"`
}

func (fw forwardWalk) run(tr *trial) (uint64, int) {
	r := tr.rng
	keys := []string{"a", "b", "c"}[:1+r.IntN(3)]
	c := fluent.Config{
		Tag: "forebay", Window: 1 << r.IntN(6), FrameBytes: 256 << r.IntN(5),
		AckTimeout: 30 * time.Millisecond, WriteTimeout: 10 * time.Second,
		ReconnectMin: time.Millisecond, ReconnectMax: 3 * time.Millisecond, Failback: 10 * time.Millisecond,
	}
	o := deliver.OutputOptions{
		Slab:         slab.Options{SlabBytes: 512 << r.IntN(5), FlushInterval: time.Duration(1+r.IntN(3)) * time.Millisecond, WhenFull: slab.Block()},
		CloseTimeout: patience, Deliver: deliver.Options{Retry: retry(), Breaker: tr.breaker(), HandlerFirst: true}, OnError: quiet,
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
	var venom *poison
	if fw.poison {
		venom = &poison{key: keys[0], n: -1, left: 2 + r.IntN(10)}
	}
	var peers []*forwardPeer
	var ls []*listener
	for range max(1, fw.servers) {
		p := &forwardPeer{tr: tr, poison: venom, slowness: []int{0, 0, 50}[r.IntN(3)], ackAfter: time.Millisecond}
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
	var wind *weather
	if fw.restarts {
		wind = tr.storm(8*time.Millisecond, ls...)
	}
	calm := func() {
		if wind != nil {
			wind.calm()
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
	records := min(fw.records, 300+c.Window*c.FrameBytes) // a small window is slow
	poisoned := records / 2 / len(keys)
	var dropped uint64
	for life := 1; ; life++ {
		l := open(tr, func() (*fluent.Logger, error) {
			return fluent.NewLogger(c, forebay.Delivery(func(to *deliver.OutputOptions) { *to = o }))
		})
		if life <= lives {
			tr.callers(keys, records/lives, func(r *rand.Rand, key string, n int) bool {
				if venom != nil && key == venom.key && n == poisoned {
					tr.led.excuse(key, n)
					venom.mu.Lock()
					venom.n = n
					venom.mu.Unlock()
				}
				if err := l.Post(key, event{label(key, n, r.IntN(longest))}); err != nil {
					tr.led.fell(other, "Post: %v", err)
					return false
				}
				return true
			})
		}
		ctx, cancel := minute()
		if life == lives {
			calm()
		} else if life < lives { // a Close of little time, maybe while nobody is there
			ctx, cancel = context.WithTimeout(ctx, hurry)
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
		if venom == nil && a.Dropped.Total() > 0 {
			tr.led.fell(missing, "dropped: %v", a)
		}
		if a.Check() == nil && (life < lives || a.Pending.Spill > 0 && a.Pending.Spill == a.Pending.Total() && life < lives+100) {
			continue // a Close that finds the circuit open leaves the spool to the next life
		}
		tr.ended(a, err)
		break
	}
	// The shortest entry has some 30 bytes.
	return dropped, c.Window * (c.FrameBytes/30 + 1)
}

// A Forward server that resets, restarts, answers late and in any order.
func TestForward(t *testing.T) {
	play(t, "good", 2, 300, forwardWalk{records: 2500}.run)
	play(t, "late", 2, 300, forwardWalk{records: 2500, late: true}.run)
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
		play(t, name, 2, 500, w.run)
		w.window, w.records = 1, w.records/3
		play(t, name+"/window1", 1, 300, w.run)
	}
}

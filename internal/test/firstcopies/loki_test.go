package firstcopies

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/slab"
)

// A lokiPeer is a Loki server that fails at random until good is set.
type lokiPeer struct {
	tr   *walkRound
	l    *listener
	good atomic.Bool
	mu   sync.Mutex
	dice *rand.Rand

	// Frequency of each fault: one in this many requests. 0: never.
	busy, broken, resets, late, hangs int
	hangsLeft                         int
	strict                            bool // the server refuses old and long entries
	maxBody                           int  // largest body in bytes before compression; 0: no limit
}

// Limits of a strict server. It reports refused entries in the format of Loki 3.7.
const (
	lokiOldest  = time.Hour
	lokiLongest = 400
)

type lokiEntry struct {
	at   time.Time
	line string
}

type lokiStream struct {
	labels  string
	entries []lokiEntry
}

func (p *lokiPeer) rolls(n int) bool {
	if n == 0 || p.good.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dice.IntN(n) == 0
}

func (p *lokiPeer) start() {
	p.dice = p.tr.fork()
	p.l = p.tr.serveHTTP(p)
}

// serveHTTP starts an HTTP server on a listener that can go down.
func (tr *walkRound) serveHTTP(h http.Handler) *listener {
	gate := &gate{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed || s == http.StateHijacked {
			tr.led.failed() // the client may have lost an answer
		}
	}}
	served := make(chan struct{})
	go func() {
		defer close(served)
		srv.Serve(gate)
	}()
	tr.atEnd(func() {
		srv.Close()
		<-served
	})
	l := tr.listen(false, func(c *net.TCPConn, _ *rand.Rand) {
		k := &kept{TCPConn: c, gone: make(chan struct{})}
		select {
		case gate.conns <- k:
			<-k.gone
		case <-gate.done:
		}
	})
	gate.addr = l.ln.Addr()
	return l
}

// A gate is a net.Listener that passes the connections of a listener to an http.Server.
type gate struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func (g *gate) Accept() (net.Conn, error) {
	select {
	case c := <-g.conns:
		return c, nil
	case <-g.done:
		return nil, net.ErrClosed
	}
}
func (g *gate) Close() error   { g.once.Do(func() { close(g.done) }); return nil }
func (g *gate) Addr() net.Addr { return g.addr }

// A kept is a connection that closes the channel gone when the http.Server closes it.
type kept struct {
	*net.TCPConn
	once sync.Once
	gone chan struct{}
}

func (k *kept) Close() error {
	err := k.TCPConn.Close()
	k.once.Do(func() { close(k.gone) })
	return err
}

func (p *lokiPeer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	streams, size, err := readPush(r.Header, body)
	if err != nil {
		p.tr.led.report(other, "a request that cannot be read: %v", err)
		return
	}
	kill := func() {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			end(c.(*kept).TCPConn, p.dice)
			c.Close()
		}
	}
	answer := func(status int, text string) {
		if status != http.StatusNoContent {
			p.tr.led.failed()
		}
		http.Error(w, text, status)
	}
	switch {
	case p.rolls(p.resets):
		kill()
		return
	case p.rolls(p.busy):
		answer(429, fmt.Sprintf("ingestion rate limit exceeded for user fake (limit: 4194304 bytes/sec) while attempting to ingest '%d' lines totaling '%d' bytes, reduce log volume or contact your Loki administrator to see if the limit can be increased", len(streams[0].entries), size))
		return
	case p.rolls(p.broken):
		answer(500, "rpc error: code = Unavailable desc = the ingester is not ready")
		return
	case p.maxBody > 0 && !p.good.Load() && size > p.maxBody && len(streams[0].entries) > 1:
		answer(413, fmt.Sprintf("request body too large: %d bytes, limit %d", size, p.maxBody))
		return
	}
	status, text := p.store(streams)
	switch {
	case p.rolls(p.resets):
		kill()
	case p.rolls(p.hangs) && p.mayHang():
		<-r.Context().Done() // until the client gives up
		p.tr.led.failed()
	case p.rolls(p.late):
		p.mu.Lock()
		d := time.Duration(p.dice.IntN(3000)) * time.Microsecond
		p.mu.Unlock()
		time.Sleep(d)
		fallthrough
	default:
		if status == http.StatusNoContent {
			w.WriteHeader(status)
			return
		}
		answer(status, text)
	}
}

func (p *lokiPeer) mayHang() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangsLeft--
	return p.hangsLeft >= 0
}

// store stores the entries that the server does not refuse, and returns the answer.
func (p *lokiPeer) store(streams []lokiStream) (status int, text string) {
	now := time.Now()
	errs := map[string]int{}
	for _, s := range streams {
		for _, e := range s.entries {
			oldest := now.Add(-lokiOldest)
			switch message := lokiMessage(e.line); {
			case p.strict && e.at.Before(oldest):
				errs[fmt.Sprintf("entry for stream '%s' has timestamp too old: %s, oldest acceptable timestamp is: %s", s.labels,
					e.at.UTC().Format(time.RFC3339), oldest.UTC().Format(time.RFC3339))]++
			case p.strict && len(e.line) > lokiLongest:
				errs[fmt.Sprintf("max entry size '%d' bytes exceeded for stream '%s' while adding an entry with length '%d' bytes", lokiLongest, s.labels, len(e.line))]++
			case message == "records dropped": // a gap marker is not part of the order
			case message == "":
				p.tr.led.report(other, "a line that cannot be read: %.100q", e.line)
			default:
				p.tr.led.arriveText(message)
			}
		}
	}
	if len(errs) == 0 {
		return http.StatusNoContent, ""
	}
	var parts []string
	for _, e := range sortedKeys(errs) {
		if n := errs[e]; len(errs) > 1 || n > 1 {
			e = fmt.Sprintf("%d errors like: %s", n, e)
		}
		parts = append(parts, e)
	}
	return http.StatusBadRequest, strings.Join(parts, "; ")
}

func lokiMessage(line string) string {
	var body struct{ Msg string }
	if json.Unmarshal([]byte(line), &body) != nil {
		return ""
	}
	return body.Msg
}

// readPush parses a push request in any encoding.
func readPush(h http.Header, body []byte) (streams []lokiStream, size int, err error) {
	switch {
	case h.Get("Content-Type") == "application/x-protobuf":
		if body, err = snappy.Decode(nil, body); err != nil {
			return nil, 0, err
		}
		streams, err = readProto(body)
		return streams, len(body), err
	case h.Get("Content-Encoding") == "gzip":
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, 0, err
		}
		if body, err = io.ReadAll(z); err != nil {
			return nil, 0, err
		}
	}
	var req struct {
		Streams []struct {
			Stream map[string]string
			Values [][]json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, 0, err
	}
	for _, s := range req.Streams {
		out := lokiStream{labels: fmt.Sprint(s.Stream)}
		for _, v := range s.Values {
			var ns, line string
			if len(v) < 2 || json.Unmarshal(v[0], &ns) != nil || json.Unmarshal(v[1], &line) != nil {
				return nil, 0, errors.New("a value is no time and line")
			}
			t, err := strconv.ParseInt(ns, 10, 64)
			if err != nil {
				return nil, 0, err
			}
			out.entries = append(out.entries, lokiEntry{time.Unix(0, t), line})
		}
		streams = append(streams, out)
	}
	return streams, len(body), nil
}

// fields calls f for each field of a protobuf message, with n for a number and b for bytes.
func fields(b []byte, f func(num int, n uint64, b []byte) error) error {
	for len(b) > 0 {
		tag, k := binary.Uvarint(b)
		if k <= 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[k:]
		n, k := binary.Uvarint(b)
		if k <= 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[k:]
		var data []byte
		switch tag & 7 {
		case 0:
		case 2:
			if n > uint64(len(b)) {
				return io.ErrUnexpectedEOF
			}
			data, b = b[:n], b[n:]
		default:
			return fmt.Errorf("wire type %d", tag&7)
		}
		if err := f(int(tag>>3), n, data); err != nil {
			return err
		}
	}
	return nil
}

func readProto(b []byte) (streams []lokiStream, err error) {
	err = fields(b, func(num int, _ uint64, b []byte) error {
		var s lokiStream
		err := fields(b, func(num int, _ uint64, b []byte) error {
			if num == 1 {
				s.labels = string(b)
				return nil
			}
			var e lokiEntry
			err := fields(b, func(num int, _ uint64, b []byte) error {
				switch num {
				case 1:
					var sec, ns uint64
					err := fields(b, func(num int, n uint64, _ []byte) error {
						if num == 1 {
							sec = n
						} else {
							ns = n
						}
						return nil
					})
					e.at = time.Unix(int64(sec), int64(ns))
					return err
				case 2:
					e.line = string(b)
				}
				return nil
			})
			s.entries = append(s.entries, e)
			return err
		})
		streams = append(streams, s)
		return err
	})
	return streams, err
}

// A lokiWalk selects the faults of a walk with a Loki server.
type lokiWalk struct {
	records  int
	errors   bool // the server answers 429 and 500
	resets   bool // connections end before a request is stored and after it
	late     bool
	hangs    int
	strict   bool // the server refuses old and long entries and names each
	small    bool // the server often refuses requests as too large
	restarts bool
	spool    bool
	crash    bool
}

func (lw lokiWalk) run(tr *walkRound) (uint64, int) {
	r := tr.rng
	keys := []string{"a", "b", "c", "d"}[:1+r.IntN(4)]
	p := &lokiPeer{tr: tr, strict: lw.strict, hangs: 20, hangsLeft: lw.hangs}
	odds := func(on bool) int {
		if !on {
			return 0
		}
		return 3 + r.IntN(30)
	}
	p.busy, p.broken, p.resets, p.late = odds(lw.errors), odds(lw.errors), odds(lw.resets), odds(lw.late)
	p.start()
	ls := []*listener{p.l}
	c := loki.Config{
		URL:          "http://" + p.l.addr,
		Labels:       map[string]string{"app": "x"},
		LabelAttrs:   []string{"key"},
		NoLevelLabel: true,
		Wire:         []string{"protobuf", "json", "json+gzip"}[r.IntN(3)],
		BatchBytes:   1024 << r.IntN(5),
		BatchAge:     time.Duration(1+r.IntN(3)) * time.Millisecond,
		Concurrency:  1 + r.IntN(4),
		HTTP:         httpclient.Options{Timeout: 10 * time.Second},
		Limits:       loki.Limits{MaxAge: -1},
	}
	o := deliver.OutputOptions{
		Slab:    slab.Options{SlabBytes: 512 << r.IntN(5), WhenFull: slab.Block()},
		Deliver: deliver.Options{Retry: retry(), Breaker: tr.breaker()}, OnError: quiet,
	}
	if lw.hangs > 0 {
		c.HTTP.Timeout = 30 * time.Millisecond
	}
	if lw.small {
		p.maxBody = max(c.BatchBytes/4, 1500)
	}
	o.BufferBytes = o.Slab.SlabBytes * (2 + r.IntN(8))
	if lw.spool {
		o.SpoolDir = tr.dir()
		o.Slab.WhenFull = []slab.WhenFull{slab.Block(), slab.Spill()}[r.IntN(2)]
	}
	if lw.crash {
		o.CrashDir = tr.dir()
	}
	var faults *outages
	if lw.restarts {
		faults = tr.startOutages(8*time.Millisecond, p.l)
	}
	lives := 1
	if lw.spool || lw.crash {
		lives += r.IntN(3)
	}
	longest := 40 + r.IntN(200)
	for life := 1; ; life++ {
		h := open(tr, func() (*forebay.Router, error) {
			d, err := loki.New(c)
			if err != nil {
				return nil, err
			}
			return forebay.NewRouter(forebay.To(d, forebay.Delivery(func(to *deliver.OutputOptions) { *to = o })))
		})
		if life <= lives {
			scopes := map[string]slog.Handler{}
			for _, key := range keys {
				scopes[key] = h.WithAttrs([]slog.Attr{slog.String("key", key)})
			}
			tr.callers(keys, lw.records/lives, func(r *rand.Rand, key string, n int) bool {
				pad, at := r.IntN(longest), time.Now()
				if lw.strict && r.IntN(40) == 0 {
					tr.led.excuse(key, n)
					if r.IntN(2) == 0 {
						at = at.Add(-2 * lokiOldest)
					} else {
						pad += lokiLongest
					}
				}
				if err := scopes[key].Handle(context.Background(), slog.NewRecord(at, slog.LevelInfo, label(key, n, pad), 0)); err != nil {
					tr.led.report(other, "Handle: %v", err)
					return false
				}
				return true
			})
		}
		ctx, cancel := minute()
		if life == lives {
			if faults != nil {
				faults.end()
			}
			p.good.Store(true)
		} else if life < lives { // Close with a short timeout, perhaps while the server is down
			ctx, cancel = context.WithTimeout(ctx, shortCloseTimeout)
			if r.IntN(2) == 0 {
				for _, l := range ls {
					l.down(reset)
				}
			}
		}
		_, err := h.Close(ctx)
		cancel()
		for _, l := range ls {
			l.up()
		}
		a := h.Stats().Outputs[0].Account
		if a.Check() == nil && (life < lives || a.Pending.Spill > 0 && a.Pending.Spill == a.Pending.Total() && life < lives+100) {
			continue // if the circuit is open, Close leaves the spool to the next handler
		}
		tr.ended(a, err)
		break
	}
	// Refused records are excused. No other record may be dropped.
	//
	// The shortest entry has about 40 bytes. One batch may be in flight while another is built.
	return 0, 2*c.BatchBytes/40 + 1
}

// A Loki server fails, resets connections, hangs, and refuses entries and requests. The first
// copies of each stream's entries arrive in order.
func TestLokiKeepsOrder(t *testing.T) {
	for name, w := range map[string]lokiWalk{
		"good":     {records: 2000},
		"errors":   {records: 1200, errors: true, late: true},
		"resets":   {records: 1200, resets: true, late: true},
		"hangs":    {records: 1200, late: true, hangs: 3},
		"refusals": {records: 1200, errors: true, strict: true},
		"halving":  {records: 1200, errors: true, small: true},
		"restarts": {records: 1200, late: true, restarts: true},
		"spool":    {records: 1200, errors: true, resets: true, restarts: true, spool: true},
		"crash":    {records: 1200, errors: true, resets: true, restarts: true, crash: true},
		"all":      {records: 1200, errors: true, resets: true, late: true, hangs: 1, strict: true, small: true, restarts: true, spool: true},
	} {
		play(t, name, 1, w.run)
	}
}

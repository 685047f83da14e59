package firstcopies

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/httpsink"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/otlp"
	"github.com/forebay-log/forebay/slab"
)

// An httpPeer is a server that fails at random until good is set. It implements one API of package
// httpsink, or OTLP.
type httpPeer struct {
	tr   *walkRound
	l    *listener
	form string
	good atomic.Bool
	mu   sync.Mutex
	dice *rand.Rand

	// Frequency of each fault: one in this many requests or, for busy, one in this many records. 0:
	// never.
	busy, broken, resets, cuts, hangs int
	hangsLeft                         int
	strict                            bool // the server refuses long records
	maxBody                           int  // largest body in bytes before compression; 0: no limit

	docs  map[string]bool // _id of each stored record
	later map[string]bool // labels of records for which the server was too busy
}

// httpLongest is the length of the longest message that a strict server accepts.
const httpLongest = 400

func (p *httpPeer) rolls(n int) bool {
	if n == 0 || p.good.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dice.IntN(n) == 0
}

func (p *httpPeer) start() {
	p.dice, p.docs, p.later = p.tr.fork(), map[string]bool{}, map[string]bool{}
	p.l = p.tr.serveHTTP(p)
}

func (p *httpPeer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	if err != nil {
		return
	}
	recs, err := readHTTP(p.form, body)
	if err != nil {
		p.tr.led.report(other, "a request that cannot be read: %v", err)
		return
	}
	kill := func(part string) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			if part != "" {
				fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(part), part[:p.dice.IntN(len(part))])
				rw.Flush()
			}
			end(c.(*kept).TCPConn, p.dice)
			c.Close()
		}
	}
	answer := func(status int, text string) {
		if status != http.StatusOK {
			p.tr.led.failed()
		}
		w.WriteHeader(status)
		io.WriteString(w, text)
	}
	switch {
	case p.rolls(p.resets):
		kill("")
		return
	case p.rolls(p.busy):
		answer(429, "slow down")
		return
	case p.rolls(p.broken):
		answer(503, "not ready")
		return
	case p.maxBody > 0 && !p.good.Load() && len(body) > p.maxBody && len(recs) > 1:
		answer(413, "too large")
		return
	}
	status, text := p.store(recs)
	switch {
	case p.rolls(p.resets):
		kill("")
	case p.rolls(p.cuts):
		kill(text + " ")
	case p.rolls(p.hangs) && p.mayHang():
		<-r.Context().Done() // until the client gives up
		p.tr.led.failed()
	default:
		answer(status, text)
	}
}

func (p *httpPeer) mayHang() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangsLeft--
	return p.hangsLeft >= 0
}

// An httpRecord is one record in a request.
type httpRecord struct{ id, message string }

// store stores the records that the server does not refuse, and returns the answer.
func (p *httpPeer) store(recs []httpRecord) (status int, text string) {
	refuses := func(r httpRecord) bool { return p.strict && len(r.message) > httpLongest }
	if p.form == "elasticsearch" {
		return 200, p.storeEach(recs, refuses)
	}
	if p.form == "hec" && len(recs) == 0 {
		return 400, `{"text":"No data","code":5}`
	}
	for i, r := range recs {
		if !refuses(r) {
			continue
		}
		if p.form == "hec" {
			return 400, fmt.Sprintf(`{"text":"Invalid data format","code":6,"invalid-event-number":%d}`, i)
		}
		return 400, "a record is too long"
	}
	for _, r := range recs {
		p.arrive(r)
	}
	switch p.form {
	case "hec":
		return 200, `{"text":"Success","code":0}`
	case "otlp":
		return 200, ""
	}
	return 200, "ok"
}

func (p *httpPeer) arrive(r httpRecord) {
	if r.message != "records dropped" { // a gap marker is not part of the order
		p.tr.led.arriveText(r.message)
	}
}

// storeEach stores records as the bulk API of Elasticsearch does, with a result for each record. A
// record for which the server is too busy arrives later, out of order.
func (p *httpPeer) storeEach(recs []httpRecord, refuses func(httpRecord) bool) string {
	var items []string
	for _, r := range recs {
		items = append(items, p.storeOne(r, refuses(r)))
	}
	return `{"errors":true,"items":[` + strings.Join(items, ",") + `]}`
}

// storeOne stores one record and returns its item of the answer. It holds the lock throughout,
// because the client may repeat a request on another connection while the server still stores
// records of the first request.
func (p *httpPeer) storeOne(r httpRecord, refused bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case refused:
		return `{"create":{"status":400,"error":{"type":"document_parsing_exception","reason":"too long"}}}`
	case p.docs[r.id]:
		return `{"create":{"status":409,"error":{"type":"version_conflict_engine_exception","reason":"document already exists"}}}`
	case p.busy > 0 && !p.good.Load() && p.dice.IntN(10*p.busy) == 0:
		if key, n, err := readLabel(r.message); err == nil {
			p.tr.led.excuse(key, n)
			p.later[r.message] = true
		}
		return `{"create":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"queue full"}}}`
	}
	p.docs[r.id] = true
	delete(p.later, r.message)
	p.arrive(r)
	return `{"create":{"status":201}}`
}

var errNoRecord = errors.New("it has another shape")

// readHTTP parses the body of a request in the given form.
func readHTTP(form string, body []byte) (recs []httpRecord, err error) {
	add := func(text []byte, id string) error {
		var rec struct {
			Msg     string
			Message string // the field of Elasticsearch, OpenSearch and Datadog
			Event   *struct{ Msg string }
		}
		if err := json.Unmarshal(text, &rec); err != nil {
			return fmt.Errorf("%w: %.100q", err, text)
		}
		if rec.Event != nil {
			rec.Msg = rec.Event.Msg
		}
		recs = append(recs, httpRecord{id, cmp.Or(rec.Msg, rec.Message)})
		return nil
	}
	switch form {
	case "otlp":
		return readOTLP(body)
	case "array":
		var all []json.RawMessage
		if err := json.Unmarshal(body, &all); err != nil {
			return nil, err
		}
		for _, rec := range all {
			if err := add(rec, ""); err != nil {
				return nil, err
			}
		}
		return recs, nil
	}
	id := ""
	for line := range bytes.Lines(body) {
		var action struct {
			Create *struct {
				ID string `json:"_id"`
			}
		}
		if form == "elasticsearch" && id == "" {
			if json.Unmarshal(line, &action) != nil || action.Create == nil || action.Create.ID == "" {
				return nil, fmt.Errorf("%w: %.100q", errNoRecord, line)
			}
			id = action.Create.ID
			continue
		}
		if err := add(line, id); err != nil {
			return nil, err
		}
		id = ""
	}
	return recs, nil
}

// readOTLP parses the bodies of the log records in an OTLP request.
func readOTLP(body []byte) (recs []httpRecord, err error) {
	in := func(want int, then func(b []byte) error) func(int, uint64, []byte) error {
		return func(num int, _ uint64, b []byte) error {
			if num != want {
				return nil
			}
			return then(b)
		}
	}
	record := func(b []byte) error {
		b = dropFixed(b)
		return fields(b, in(5, func(b []byte) error { // body
			return fields(b, in(1, func(b []byte) error {
				recs = append(recs, httpRecord{message: string(b)})
				return nil
			}))
		}))
	}
	err = fields(body, in(1, func(b []byte) error { // ResourceLogs
		return fields(b, in(2, func(b []byte) error { // ScopeLogs
			return fields(b, in(2, record))
		}))
	}))
	return recs, err
}

// dropFixed removes the fixed64 fields at the start of a log record, because fields does not parse
// that wire type.
func dropFixed(b []byte) []byte {
	for len(b) >= 9 && b[0]&7 == 1 {
		b = b[9:]
	}
	return b
}

// An httpWalk selects the faults of a walk with an HTTP server.
type httpWalk struct {
	records  int
	errors   bool // the server answers 429 and 503, also for single records
	resets   bool // connections end before a request is stored, after it, and within an answer
	hangs    int
	strict   bool // the server refuses long records
	small    bool // the server often refuses requests as too large
	restarts bool
	spool    bool
	crash    bool
}

func (hw httpWalk) run(form string) walk {
	return func(tr *walkRound) (uint64, int) { return hw.play(tr, form) }
}

func (hw httpWalk) play(tr *walkRound, form string) (uint64, int) {
	r := tr.rng
	p := &httpPeer{tr: tr, form: form, strict: hw.strict, hangs: 20, hangsLeft: hw.hangs}
	odds := func(on bool) int {
		if !on {
			return 0
		}
		return 3 + r.IntN(30)
	}
	p.busy, p.broken, p.resets, p.cuts = odds(hw.errors), odds(hw.errors), odds(hw.resets), odds(hw.resets)
	p.start()
	timeout := 10 * time.Second
	if hw.hangs > 0 {
		timeout = 30 * time.Millisecond
	}
	bytes, age := 1024<<r.IntN(5), time.Duration(1+r.IntN(3))*time.Millisecond
	if hw.small {
		p.maxBody = max(bytes/4, 1500)
	}
	slabBytes := 512 << r.IntN(5)
	o := deliver.OutputOptions{
		Slab:    slab.Options{SlabBytes: slabBytes, SlabCount: 2 + r.IntN(8), FlushInterval: age, WhenFull: slab.Block()},
		Deliver: deliver.Options{Retry: retry(), Breaker: tr.breaker()},
		OnError: quiet,
	}
	if hw.spool {
		o.SpoolDir = tr.dir()
		if r.IntN(2) == 0 {
			o.Slab.WhenFull = slab.Spill()
		}
	}
	if hw.crash {
		o.CrashDir = tr.dir()
	}
	var faults *outages
	if hw.restarts {
		faults = tr.startOutages(8*time.Millisecond, p.l)
	}
	lives := 1
	if hw.spool || hw.crash {
		lives += r.IntN(3)
	}
	longest := 40 + r.IntN(200)
	keys := []string{"a", "b", "c", "d"}[:1+r.IntN(4)]
	for life := 1; ; life++ {
		var w *deliver.Output
		var encodeLine func(text string) ([]byte, batch.Meta, error)
		w = open(tr, func() (*deliver.Output, error) {
			url := "http://" + p.l.addr + "/x"
			if form == "otlp" {
				x, err := otlp.New(otlp.Config{URL: url, BatchBytes: bytes, BatchAge: age, HTTP: httpclient.Options{Timeout: timeout, NoProxy: true}})
				if err != nil {
					return nil, err
				}
				o.Codec = x.Encoder().Codec()
				encodeLine = func(text string) ([]byte, batch.Meta, error) {
					return x.AppendLine(nil, time.Now(), slog.LevelInfo, []byte(text), nil)
				}
				return deliver.NewOutput(x, &o)
			}
			d, err := httpsink.New(httpsink.Config{URL: url, API: form, BatchBytes: bytes, BatchAge: age, HTTP: httpclient.Options{Timeout: timeout, NoProxy: true}})
			if err != nil {
				return nil, err
			}
			o.Codec = encode.JSON(nil).Codec()
			encodeLine = func(text string) ([]byte, batch.Meta, error) {
				return fmt.Appendf(nil, "{\"msg\":%q}\n", text), batch.Meta{Time: time.Now().UnixNano()}, nil
			}
			return deliver.NewOutput(d, &o)
		})
		if life <= lives {
			tr.callers(keys, hw.records/lives, func(r *rand.Rand, key string, n int) bool {
				pad := r.IntN(longest)
				if hw.strict && r.IntN(40) == 0 {
					tr.led.excuse(key, n)
					pad += httpLongest
				}
				rec, m, err := encodeLine(label(key, n, pad))
				if err == nil {
					err = w.WriteRecord(rec, m)
				}
				if err != nil {
					tr.led.report(other, "WriteRecord: %v", err)
				}
				return err == nil
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
				p.l.down(reset)
			}
		}
		_, err := w.Shutdown(ctx)
		cancel()
		p.l.up()
		a := w.Account()
		if a.Check() == nil && (life < lives || a.Pending.Spill > 0 && a.Pending.Spill == a.Pending.Total() && life < lives+100) {
			continue // if the circuit is open, Close leaves the spool to the next output
		}
		tr.ended(a, err)
		break
	}
	for text := range p.later {
		tr.led.report(missing, "a record for which the server was too busy never came: %.40s", text)
	}
	if form == "elasticsearch" {
		return 0, 0 // records with the same _id are stored once
	}
	// The shortest record has about 20 bytes. One batch may be in flight while another is built.
	return 0, 2*bytes/20 + 1
}

// HTTP servers fail, reset connections, hang, cut their answers, and refuse records and requests.
// The first copies of records arrive in order.
func TestHTTPKeepsOrder(t *testing.T) {
	seed := testkit.Seed(t)
	for i, form := range []string{"ndjson", "array", "elasticsearch", "hec", "otlp"} {
		for j, tt := range []struct {
			name string
			w    httpWalk
		}{
			{"good", httpWalk{records: 2000}},
			{"errors", httpWalk{records: 1000, errors: true}},
			{"resets", httpWalk{records: 1000, resets: true}},
			{"hangs", httpWalk{records: 1000, hangs: 3}},
			{"refusals", httpWalk{records: 1000, errors: true, strict: true}},
			{"halving", httpWalk{records: 1000, errors: true, small: true}},
			{"restarts", httpWalk{records: 1000, restarts: true}},
			{"spool", httpWalk{records: 1000, errors: true, resets: true, restarts: true, spool: true}},
			{"crash", httpWalk{records: 1000, errors: true, resets: true, restarts: true, crash: true}},
			{"all", httpWalk{records: 1000, errors: true, resets: true, hangs: 1, strict: true, small: true, restarts: true, spool: true}},
		} {
			if tt.w.spool || testkit.Share(seed, i+j, 2) {
				play(t, form+"/"+tt.name, 1, tt.w.run(form))
			}
		}
	}
}

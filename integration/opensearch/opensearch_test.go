//go:build linux

package opensearch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpsink"
)

// events collects the events of a Logger's output as texts.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) add(ev batch.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := ev.Op
	if ev.Err != nil {
		text += ": " + ev.Err.Error()
	}
	e.all = append(e.all, text)
}

func (e *events) has(text string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Contains(strings.Join(e.all, "\n"), text)
}

func (e *events) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !e.has(text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no event with %q: %q", text, e.all)
		}
	}
}

// An output is a Logger that writes to an index, with its events and its dead-letter file.
type output struct {
	*forebay.Logger
	events
	deadLetters string // path of the dead-letter file
}

// newOutput returns an output to url with short retry delays.
func newOutput(t *testing.T, url string) *output {
	t.Helper()
	o := &output{deadLetters: filepath.Join(t.TempDir(), "dead-letters")}
	log, err := forebay.New(httpsink.To(url, httpsink.API("opensearch"),
		forebay.Configure(func(c *httpsink.Config) { c.BatchRecords = 100 }),
		forebay.Delivery(func(d *deliver.OutputOptions) {
			d.OnError = o.add
			d.DeadLetterFile = o.deadLetters
			d.Deliver.Retry = &deliver.RetryOptions{Min: time.Millisecond, Max: 100 * time.Millisecond, FatalDelay: 200 * time.Millisecond, BudgetRatio: 1, BudgetPerSecond: 1e6}
			d.Deliver.Breaker = &deliver.BreakerOptions{OpenMin: 10 * time.Millisecond, OpenMax: 100 * time.Millisecond, FatalDelay: 200 * time.Millisecond}
			d.CloseTimeout = 2 * time.Minute
		})))
	if err != nil {
		t.Fatal(err)
	}
	o.Logger = log
	t.Cleanup(func() { log.Close() })
	return o
}

// write logs one record for each number in [first, end).
func (o *output) write(first, end int) {
	for i := first; i < end; i++ {
		o.Info("a record", slog.Int("n", i), slog.Float64("took", 0.25*float64(i)), slog.Group("user", slog.String("name", "ann")))
	}
}

// finish closes the output. It checks that the given numbers of records were delivered and refused.
func (o *output) finish(t *testing.T, delivered, poison uint64) {
	t.Helper()
	err := o.Close()
	a := o.Router().Stats().Outputs[0].Account
	if a.Delivered != delivered || a.Dropped[batch.Poison] != poison || a.Dropped.Total() != poison || err != nil {
		t.Errorf("%v: %s; %q", err, a, o.all)
	}
}

// All records arrive, and the server recognizes their time, message and numbers by the field names.
func TestStored(t *testing.T) {
	n := start(t)
	o := newOutput(t, "http://"+n.addr+"/stored")
	o.write(0, 3000)
	o.finish(t, 3000, 0)
	n.mustHave(t, "stored", 3000)
	var m map[string]struct {
		Mappings struct {
			Properties map[string]struct{ Type string }
		}
	}
	n.do(t, http.MethodGet, "/stored/_mapping", "", &m)
	p := m["stored"].Mappings.Properties
	if p["@timestamp"].Type != "date" || p["message"].Type != "text" || p["n"].Type != "long" {
		t.Errorf("%v", p)
	}
}

// A lossyProxy is a proxy that forwards all requests, but only two of three answers.
type lossyProxy struct {
	to string
	n  atomic.Int64
}

func (c *lossyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.URL.Scheme, r.URL.Host, r.RequestURI = "http", c.to, ""
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || c.n.Add(1)%3 == 0 {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	w.WriteHeader(res.StatusCode)
	w.Write(body)
}

// A record whose answer was lost is sent again, and is not stored twice.
func TestOnce(t *testing.T) {
	n := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &http.Server{Handler: &lossyProxy{to: n.addr}, ReadHeaderTimeout: time.Minute}
	go proxy.Serve(l)
	defer proxy.Close()
	o := newOutput(t, "http://"+l.Addr().String()+"/once")
	o.write(0, 3000)
	o.finish(t, 3000, 0)
	n.mustHave(t, "once", 3000)
}

// Records that the server refuses because of their content become dead letters. The other records
// of their batches are stored.
func TestRefused(t *testing.T) {
	n := start(t)
	n.do(t, http.MethodPut, "/refused", `{"settings":{"index.mapping.total_fields.limit":20},"mappings":{"properties":{"key":{"type":"keyword"},"took":{"type":"double"}}}}`, nil)
	o := newOutput(t, "http://"+n.addr+"/refused")
	o.write(0, 150)
	o.Info("no number", slog.Int("n", 150), slog.String("took", "long"))
	o.write(151, 250)
	o.Info("a group where a number is", slog.Int("n", 250), slog.Group("took", slog.Int("ms", 1)))
	o.Info("a word too long", slog.Int("n", 251), slog.String("key", strings.Repeat("x", 40_000)))
	o.write(252, 300)
	many := []slog.Attr{slog.Int("n", 300)}
	for i := range 30 {
		many = append(many, slog.Int(fmt.Sprint("field-", i), i))
	}
	o.Info("too many fields", many...)
	o.write(301, 400)
	o.finish(t, 396, 4)
	n.mustHave(t, "refused", 400, 150, 250, 251, 300)
	text, err := os.ReadFile(o.deadLetters)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no number", "a group where", "a word too long", "too many fields"} {
		found := false
		for line := range strings.Lines(string(text)) {
			var letter struct {
				Status int
				Reason string
			}
			if err := json.Unmarshal([]byte(line), &letter); err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(line, want) && letter.Status == http.StatusBadRequest && strings.Contains(letter.Reason, "_exception: ")
		}
		if !found {
			t.Errorf("no dead letter with %q: %.3000s", want, text)
		}
	}
}

// While an index accepts no writes, its records wait and none is refused.
func TestBlocked(t *testing.T) {
	n := start(t)
	n.do(t, http.MethodPut, "/blocked", "", nil)
	o := newOutput(t, "http://"+n.addr+"/blocked")
	for round, block := range []string{"write", "read_only_allow_delete"} {
		from := round * 1000
		o.write(from, from+500)
		if err := o.Router().Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.do(t, http.MethodPut, "/blocked/_settings", `{"index.blocks.`+block+`":true}`, nil)
		o.write(from+500, from+1000)
		o.await(t, "cluster_block_exception")
		time.Sleep(time.Second) // time in which no record may be refused
		n.do(t, http.MethodPut, "/blocked/_settings", `{"index.blocks.`+block+`":null}`, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for o.Router().Flush(ctx) != nil && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}
	o.finish(t, 2000, 0)
	n.mustHave(t, "blocked", 2000)
}

// While an index does not exist and is not created automatically, its records wait.
func TestNoIndex(t *testing.T) {
	n := start(t)
	setting := func(v string) {
		n.do(t, http.MethodPut, "/_cluster/settings", `{"persistent":{"action.auto_create_index":`+v+`}}`, nil)
	}
	setting("false")
	defer setting("null")
	o := newOutput(t, "http://"+n.addr+"/later")
	o.write(0, 300)
	o.await(t, "index_not_found_exception")
	n.do(t, http.MethodPut, "/later", "", nil)
	o.finish(t, 300, 0)
	n.mustHave(t, "later", 300)
}

// A data stream accepts the same requests as an index.
func TestDataStream(t *testing.T) {
	n := start(t)
	n.do(t, http.MethodPut, "/_index_template/events", `{"index_patterns":["events-*"],"data_stream":{}}`, nil)
	o := newOutput(t, "http://"+n.addr+"/events-shop")
	o.write(0, 500)
	o.finish(t, 500, 0)
	n.mustHave(t, "events-shop", 500)
	var got struct {
		Streams []struct{ Name string } `json:"data_streams"`
	}
	n.do(t, http.MethodGet, "/_data_stream/events-shop", "", &got)
	if len(got.Streams) != 1 {
		t.Errorf("%v", got)
	}
}

// A node is killed and restarted three times while records are written. It stores each record once.
func TestKilled(t *testing.T) {
	n := start(t)
	o := newOutput(t, "http://"+n.addr+"/killed")
	const records = 6000
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; i < records; i += 10 {
			o.write(i, i+10)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	for range 3 {
		time.Sleep(1500 * time.Millisecond)
		n.kill()
		time.Sleep(500 * time.Millisecond)
		n.up(t)
	}
	<-written
	o.finish(t, records, 0)
	n.mustHave(t, "killed", records)
}

package httpsink

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/layout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A peer is a server whose responses are computed by a function. It uses no network.
type peer struct {
	mu     sync.Mutex
	got    []request
	answer func(n int, r request) reply
}

// A request is a request that a peer has received.
type request struct {
	url    string
	header http.Header
	body   string
}

// records returns the lines of r without the action lines of Elasticsearch.
func (r request) records() (recs []string) {
	for line := range strings.Lines(r.body) {
		if !strings.HasPrefix(line, `{"create":`) {
			recs = append(recs, strings.TrimSuffix(line, "\n"))
		}
	}
	return recs
}

// A reply is the response to a request, or the error of the transport.
type reply struct {
	status int
	kind   string
	text   string
	after  string
	fails  error
}

func (p *peer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	req := request{r.URL.String(), r.Header, string(body)}
	p.got = append(p.got, req)
	a := reply{status: 200}
	if p.answer != nil {
		a = p.answer(len(p.got)-1, req)
	}
	if a.fails != nil {
		return nil, a.fails
	}
	h := http.Header{"Content-Type": {a.kind}}
	if a.after != "" {
		h.Set("Retry-After", a.after)
	}
	return &http.Response{StatusCode: a.status, Header: h, Body: io.NopCloser(strings.NewReader(a.text)), Request: r}, nil
}

// destFor returns a Driver that sends to p.
func destFor(t testing.TB, p *peer, api string, set func(*Config)) *Driver {
	t.Helper()
	c := Config{URL: "http://server.test/x", API: api, HTTP: httpclient.Options{Client: &http.Client{Transport: p}}}
	if set != nil {
		set(&c)
	}
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// origin is the origin of the records of batchOf.
var origin = [16]byte{0xab, 15: 1}

// batchOf returns a batch of the given records, which are lines of JSON. Their tickets (sequence
// numbers) start at 1.
func batchOf(recs ...string) *batch.Batch {
	var block []byte
	var slots []layout.Slot
	for i, r := range recs {
		slots = append(slots, layout.Slot{Off: uint32(len(block)), Len: uint32(len(r)), Ticket: uint64(i + 1), Time: 1_500_000_000_123_456_789})
		block = append(block, r...)
	}
	b := &batch.Batch{Codec: encode.JSON(nil).Codec(), Origin: origin}
	b.Add(layout.NewRun(block, slots))
	return b
}

// loggerFor returns a logger with one output that sends to p.
func loggerFor(t testing.TB, p *peer, api string, opts ...forebay.OutputOption) *forebay.Logger {
	t.Helper()
	opts = append([]forebay.OutputOption{API(api), forebay.Configure(func(c *Config) { c.HTTP.Client = &http.Client{Transport: p} })}, opts...)
	log, err := forebay.New(To("http://server.test/x", opts...))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// An elastic is a fake Elasticsearch that stores documents by _id. statusOf returns the status and the
// error type for a new document.
type elastic struct {
	mu       sync.Mutex
	docs     map[string]string // by _id
	order    []string          // documents in the order in which they were stored
	ids      int
	statusOf func(doc string) (status int, kind string)
}

func (e *elastic) answer(body string) reply {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.docs == nil {
		e.docs = map[string]string{}
	}
	type item = map[string]any
	var items []item
	failed := false
	lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	if len(lines)%2 != 0 {
		return reply{status: 400, kind: "application/json", text: `{"error":{"type":"illegal_argument_exception","reason":"Malformed action/metadata line"},"status":400}`}
	}
	for i := 0; i < len(lines); i += 2 {
		var action struct {
			Create *struct {
				ID string `json:"_id"`
			}
		}
		if json.Unmarshal([]byte(lines[i]), &action) != nil || action.Create == nil {
			return reply{status: 400, kind: "application/json", text: `{"error":{"type":"illegal_argument_exception","reason":"Malformed action/metadata line [1]"},"status":400}`}
		}
		id, doc := action.Create.ID, lines[i+1]
		if id == "" {
			e.ids++
			id = fmt.Sprintf("auto%d", e.ids)
		}
		status, kind := 201, ""
		if e.statusOf != nil {
			status, kind = e.statusOf(doc)
		}
		if _, is := e.docs[id]; is {
			status, kind = 409, "version_conflict_engine_exception"
		}
		if status == 201 {
			e.docs[id] = doc
			e.order = append(e.order, doc)
			items = append(items, item{"create": item{"_index": "x", "_id": id, "status": status}})
			continue
		}
		failed = true
		items = append(items, item{"create": item{"_index": "x", "_id": id, "status": status, "error": item{"type": kind, "reason": "because of " + doc}}})
	}
	text, _ := json.Marshal(item{"took": 1, "errors": failed, "items": items})
	return reply{status: 200, kind: "application/json", text: string(text)}
}

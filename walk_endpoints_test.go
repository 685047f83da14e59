package forebay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
)

// key identifies a record: the number of the goroutine that logged it, and the number of the record
// in that goroutine.
type key struct{ goroutine, n int }

func (k key) String() string { return fmt.Sprintf("%d.%d", k.goroutine, k.n) }

// tokenOf returns the text that identifies the record k in any encoding. The length and content of
// the text follow from k and size, so that readToken detects a torn or damaged record.
func tokenOf(k key, size int) string {
	p := fmt.Appendf(nil, "K%dN%dL%dX", k.goroutine, k.n, size)
	for i := range size {
		p = append(p, 'a'+byte((k.goroutine*7+k.n*3+i)%26))
	}
	return string(append(p, 'Z'))
}

var token = regexp.MustCompile(`K(\d+)N(\d+)L(\d+)X[a-z]*Z`)

// errMarker is returned for a record that the test has not logged. It reports dropped records, or
// was sent to test whether the destination works.
var errMarker = errors.New("a marker")

// readToken returns the key of the only record in p.
func readToken(p []byte) (key, error) {
	m := token.FindAllSubmatch(p, -1)
	if len(m) == 0 && (bytes.Contains(p, []byte("records dropped")) || bytes.Contains(p, []byte("the server has ended connections"))) {
		return key{}, errMarker
	}
	if len(m) != 1 {
		return key{}, fmt.Errorf("%d records in %.600q", len(m), p)
	}
	goroutine, _ := strconv.Atoi(string(m[0][1]))
	n, _ := strconv.Atoi(string(m[0][2]))
	size, _ := strconv.Atoi(string(m[0][3]))
	k := key{goroutine, n}
	if want := tokenOf(k, min(size, 1<<20)); want != string(m[0][0]) {
		return key{}, fmt.Errorf("torn: %.200q", p)
	}
	return k, nil
}

// readWith is like readToken, for a record encoded in the format of codec.
func readWith(codec batch.Codec) func(p []byte) (key, error) {
	return func(p []byte) (key, error) {
		js := codec.AppendJSON(nil, p, batch.Meta{})
		if !json.Valid(js) || bytes.HasPrefix(js, []byte(`{"raw`)) && codec.ContentType() != "text/plain" {
			return key{}, fmt.Errorf("torn: %.200q", p)
		}
		return readToken(p)
	}
}

// A behavior determines how an endpoint behaves at present: calls succeed, fail with probability p,
// or hang.
type behavior struct {
	mu         sync.Mutex
	rng        *rand.Rand
	p          float64
	hanging    chan struct{} // if not nil, calls hang until the channel is closed
	ignoresCtx bool          // hanging calls ignore the end of their context
	failedIn   int           // number of the process for which the endpoint fails forever; 0: none
}

// failForever makes all further calls of the process proc fail.
func (m *behavior) failForever(proc int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failedIn = proc
}

// failedForever reports whether failForever was called for the process proc.
func (m *behavior) failedForever(proc int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failedIn == proc
}

func (m *behavior) set(p float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = p
}

func (m *behavior) hang(ignoresCtx bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hanging == nil {
		m.hanging, m.ignoresCtx = make(chan struct{}), ignoresCtx
	}
}

func (m *behavior) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = 0
	if m.hanging != nil {
		close(m.hanging)
		m.hanging = nil
	}
}

// wait waits until calls no longer hang, or until ctx ends.
func (m *behavior) wait(ctx context.Context) error {
	m.mu.Lock()
	hanging, ignoresCtx := m.hanging, m.ignoresCtx
	m.mu.Unlock()
	if hanging == nil {
		return nil
	}
	if ignoresCtx {
		ctx = context.Background()
	}
	select {
	case <-hanging:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pick returns a random kind of failure from 0 to n-1, or -1 if the call succeeds.
func (m *behavior) pick(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.p == 0 || m.rng.Float64() >= m.p {
		return -1
	}
	return m.rng.IntN(n)
}

func (m *behavior) intN(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

// An arrival is a copy of a record that an endpoint has received.
type arrival struct {
	key         key
	stream      string // records of one stream arrive in order
	proc        int
	acked       bool // the sender has received the acknowledgement
	duringClose bool // received or acknowledged after Close began

	reference bool // the arrival may be a record sent as a test: it was received alone, after a session ended
}

// An endpoint is a place where records arrive: a destination, a fallback, or the place of dead
// letters. It outlives the simulated processes.
type endpoint struct {
	behavior
	o       *out
	read    func(p []byte) (key, error)
	rejects func(k key) bool // reports whether the endpoint refuses k whenever it is sent

	gotMu         sync.Mutex
	got           []*arrival
	unorderedFrom map[key]int // number of the first process in which a record may arrive after later ones
	deathIn       int         // the last process in which a session ended without an answer; see noteDeath
}

// A processEndpoint is an endpoint as seen by the process proc. Nothing arrives through it after
// that process is killed.
type processEndpoint struct {
	*endpoint
	proc int
}

func (e *endpoint) forProcess() *processEndpoint {
	proc, _ := e.o.k.now()
	return &processEndpoint{e, proc}
}

func (d *processEndpoint) dead() bool {
	proc, _ := d.o.k.now()
	return proc != d.proc
}

// wait is like behavior.wait. It returns an error if the process was killed meanwhile.
func (d *processEndpoint) wait(ctx context.Context) error {
	err := d.behavior.wait(ctx)
	if d.dead() {
		return testkit.ErrDown
	}
	return err
}

// handlerTimeout is the HandlerTimeout of the outputs. The output ignores the result of a handler
// that takes longer.
const handlerTimeout = time.Second

// waitInTime is like wait. inTime reports whether the output still waits for the result: it waits
// for a destination without limit, and for a handler at most handlerTimeout.
func (d *processEndpoint) waitInTime(ctx context.Context) (inTime bool, err error) {
	began := time.Now()
	err = d.wait(ctx)
	return d.endpoint == d.o.dest || time.Since(began) < handlerTimeout, err
}

// receive adds the records to the arrivals of the endpoint.
func (e *processEndpoint) receive(stream string, recs ...[]byte) (as []*arrival) {
	if e.dead() {
		return nil
	}
	for _, p := range recs {
		k, err := e.read(p)
		if err == errMarker {
			continue
		}
		if err != nil {
			e.o.k.errorf("%s: %v", e.o.name, err)
			continue
		}
		as = append(as, &arrival{key: k, stream: stream})
	}
	e.arrive(as)
	return as
}

func (e *endpoint) arrive(as []*arrival) {
	proc, closing := e.o.k.now()
	e.gotMu.Lock()
	defer e.gotMu.Unlock()
	for _, a := range as {
		a.proc, a.duringClose, a.reference = proc, closing, len(as) == 1 && e.deathIn == proc
		e.got = append(e.got, a)
	}
}

// noteDeath is called when a session of the current process ended without an answer.
func (e *endpoint) noteDeath() {
	proc, _ := e.o.k.now()
	e.gotMu.Lock()
	defer e.gotMu.Unlock()
	e.deathIn = proc
}

// suspect is called when a session ended while recs were sent. If recs is a single record, it may
// be set aside, so that later records arrive before it.
func (e *endpoint) suspect(recs ...[]byte) {
	proc, _ := e.o.k.now()
	e.allowUnordered(proc, recs)
}

// refuse is called when a request with recs was refused as too large. If recs is a single record,
// it is dropped and does not arrive in this process. It may arrive in the next process, out of
// order, because the spool may keep it in a batch with undelivered records.
func (e *endpoint) refuse(recs ...[]byte) {
	proc, _ := e.o.k.now()
	e.allowUnordered(proc+1, recs)
}

// allowUnordered allows a record to arrive after later records, from the process proc on. It does
// nothing unless recs is one record.
func (e *endpoint) allowUnordered(proc int, recs [][]byte) {
	if len(recs) != 1 {
		return
	}
	k, err := e.read(recs[0])
	if err != nil {
		return
	}
	e.gotMu.Lock()
	defer e.gotMu.Unlock()
	if e.unorderedFrom == nil {
		e.unorderedFrom = map[key]int{}
	}
	if l, ok := e.unorderedFrom[k]; !ok || proc < l {
		e.unorderedFrom[k] = proc
	}
}

// mayBeUnordered reports whether a may arrive after later records.
func (e *endpoint) mayBeUnordered(a *arrival) bool {
	e.gotMu.Lock()
	defer e.gotMu.Unlock()
	proc, ok := e.unorderedFrom[a.key]
	return ok && a.proc >= proc
}

// confirm is called when the sender has received the acknowledgement of these arrivals.
func (e *endpoint) confirm(as []*arrival) {
	_, closing := e.o.k.now()
	e.gotMu.Lock()
	defer e.gotMu.Unlock()
	for _, a := range as {
		a.acked, a.duringClose = true, closing
	}
}

// unconfirm is called when the sender may have lost the acknowledgements of the current process.
func (e *endpoint) unconfirm() {
	proc, _ := e.o.k.now()
	e.gotMu.Lock()
	defer e.gotMu.Unlock()
	for _, a := range e.got {
		a.acked = a.acked && a.proc != proc
	}
}

// arrivals returns all arrivals so far.
func (e *endpoint) arrivals() []*arrival {
	if e == nil {
		return nil
	}
	e.gotMu.Lock()
	defer e.gotMu.Unlock()
	return slices.Clone(e.got)
}

// dataOf returns copies of the records of b.
func dataOf(b *batch.Batch) (recs [][]byte) {
	for _, r := range b.All() {
		recs = append(recs, bytes.Clone(r.Data))
	}
	return recs
}

// answer returns the function that answers batches for a sink of package testkit. Depending on
// the behavior of e, the function accepts the batch, fails, hangs or panics.
func (e *processEndpoint) answer(async bool) testkit.Answer {
	return func(ctx context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		inTime, err := e.waitInTime(ctx)
		if err != nil {
			return nil, batch.FailedOutcome(err)
		}
		confirm := func(as []*arrival) {
			if inTime {
				e.confirm(as)
			}
		}
		recs := dataOf(b)
		if e.failedForever(e.proc) {
			return nil, batch.Outcome{Open: batch.All(), Why: errors.New("the destination has failed forever"), Advice: batch.Gone}
		}
		var bad []int
		for i, p := range recs {
			if k, err := e.read(p); err == nil && e.rejects(k) {
				bad = append(bad, i)
			}
		}
		well := func() ([]int, batch.Outcome) {
			switch {
			case len(bad) == 0:
				confirm(e.receive("", recs...))
				return nil, batch.Outcome{}
			case e.intN(2) == 0:
				return nil, testkit.Malformed(errors.New("a record is malformed"))
			}
			good := recs[:0:0]
			for i, p := range recs {
				if !slices.Contains(bad, i) {
					good = append(good, p)
				}
			}
			confirm(e.receive("", good...))
			return nil, batch.Outcome{Refused: batch.Of(bad...), Refusal: errors.New("records are malformed")}
		}
		kinds := 12
		if async {
			kinds = 10
		}
		switch e.pick(kinds) {
		case -1:
			return well()
		case 0:
			if len(bad) == 0 {
				e.receive("", recs...)
			}
			return nil, batch.FailedOutcome(errors.New("the answer was lost"))
		case 1:
			n := e.intN(len(recs) + 1)
			if len(bad) > 0 {
				n = min(n, bad[0])
			}
			confirm(e.receive("", recs[:n]...))
			return nil, batch.Outcome{Open: batch.From(n), Why: testkit.ErrDown}
		case 2:
			return nil, batch.FailedOutcome(batch.RetryAfter(testkit.ErrDown, time.Duration(e.intN(3000))*time.Millisecond))
		case 3:
			return nil, batch.FailedOutcome(batch.Fatal(errors.New("bad credentials")))
		case 4:
			if len(recs) > 1 {
				return nil, batch.Outcome{Open: batch.All(), Why: errors.New("too large"), Advice: batch.Smaller}
			}
		case 5, 6:
			select {
			case <-time.After(time.Duration(e.intN(500)) * time.Millisecond):
				return well()
			case <-ctx.Done():
				return nil, batch.FailedOutcome(ctx.Err())
			}
		case 10:
			e.suspect(recs...)
			e.noteDeath()
			panic("on purpose")
		case 11:
			e.suspect(recs...)
			e.noteDeath()
			e.unconfirm() // the results for other parts of the batch are lost with the goroutine
			runtime.Goexit()
		}
		return nil, batch.FailedOutcome(testkit.ErrDown)
	}
}

// HandleError implements deliver.ErrorHandler.
func (e *processEndpoint) HandleError(_ error, b *batch.Batch) batch.Outcome {
	inTime, err := e.waitInTime(context.Background())
	if err != nil {
		return batch.FailedOutcome(err)
	}
	recs := dataOf(b)
	receive := func(n int) {
		if as := e.receive("", recs[:n]...); inTime {
			e.confirm(as)
		}
	}
	switch e.pick(4) {
	case -1:
		receive(len(recs))
		return batch.Outcome{}
	case 0:
		n := e.intN(len(recs) + 1)
		receive(n)
		return batch.Outcome{Open: batch.From(n), Why: errors.New("the handler is full")}
	case 1:
		panic("on purpose")
	}
	return batch.FailedOutcome(errors.New("the handler is full"))
}

// A lineWriter is an io.Writer for one process. It splits the text into lines and passes each line
// to the endpoint.
type lineWriter struct {
	*processEndpoint
	mu      sync.Mutex
	text    []byte
	direct  bool // the callers of a direct output write to it, one record at a time
	writing bool
}

func (p *lineWriter) Write(b []byte) (int, error) {
	if err := p.wait(context.Background()); err != nil {
		return 0, err
	}
	p.mu.Lock()
	if p.writing {
		p.o.k.errorf("%s: two concurrent writes", p.o.name)
	}
	p.writing = true
	p.mu.Unlock()
	n, err := len(b), error(nil)
	defer func() {
		p.mu.Lock()
		p.writing = false
		p.text = append(p.text, b[:n]...)
		p.mu.Unlock()
		p.receiveLines()
	}()
	switch p.pick(8) {
	case 0:
		n, err = 0, errors.New("write failed")
	case 1:
		n, err = p.intN(len(b)+1), errors.New("write failed in the middle")
	case 2:
		n = 1 + p.intN(len(b))
	case 3:
		n, err = p.intN(len(b)+1), io.ErrShortWrite
	case 4:
		n, err = p.intN(len(b)+1), syscall.EAGAIN
	case 5:
		time.Sleep(time.Duration(p.intN(300)) * time.Millisecond)
	case 6:
		n = 0
		panic("on purpose")
	case 7:
		n = 0
		runtime.Goexit()
	}
	return n, err
}

// receiveLines passes the complete lines to the endpoint. A direct output and a handler may write
// partial lines, which are ignored.
func (p *lineWriter) receiveLines() {
	p.mu.Lock()
	end := bytes.LastIndexByte(p.text, '\n') + 1
	whole := bytes.Clone(p.text[:end])
	p.text = p.text[end:]
	p.mu.Unlock()
	for line := range bytes.Lines(whole) {
		if _, err := p.read(line); err != nil && err != errMarker && (p.direct || p.processEndpoint.endpoint != p.o.dest) {
			continue
		}
		p.confirm(p.receive("", line))
	}
}

// receiveUnterminated passes the last line to the endpoint if only its newline is missing. The
// newline would be written before the next record.
func (p *lineWriter) receiveUnterminated() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.read(p.text); err == nil {
		p.confirm(p.receive("", p.text))
		p.text = nil
	}
}

// ackTimeout is the time a client waits for an acknowledgement of a Forward server.
const ackTimeout = 2 * time.Second

// serve implements a Forward server whose faults are determined by the behavior of e.
func (e *processEndpoint) serve(_ int, c *testkit.ForwardConn) {
	var chunks []string
	var unacked []*arrival
	// slow is true once an answer took longer than ackTimeout. The client may then have closed the
	// connection and set its records aside.
	slow := false
	for {
		m, err := c.Next()
		began := time.Now()
		if err != nil || e.wait(context.Background()) != nil {
			return
		}
		store := func() []*arrival {
			if slow = slow || time.Since(began) >= ackTimeout; slow {
				for _, rec := range m.Entries {
					e.suspect(rec)
				}
			}
			return e.receive("", m.Entries...)
		}
		switch e.pick(8) {
		case -1:
			unacked, chunks = append(unacked, store()...), append(chunks, m.Chunk)
		case 0: // the connection ends before the frame is stored
			return
		case 1: // the connection ends after the frame is stored, before the answer
			store()
			return
		case 2: // no answer
			store()
			continue
		case 3: // the answer is sent together with the answer to a later frame
			unacked, chunks = append(unacked, store()...), append(chunks, m.Chunk)
			continue
		case 4:
			_, _ = c.Write([]byte("\xc1garbage"))
			return
		case 5:
			time.Sleep(time.Duration(e.intN(4000)) * time.Millisecond)
			unacked, chunks = append(unacked, store()...), append(chunks, m.Chunk)
		case 6:
			if c.Ack("unknown chunk") != nil {
				return
			}
			unacked, chunks = append(unacked, store()...), append(chunks, m.Chunk)
		case 7:
			c.Reset()
			return
		}
		for _, id := range chunks {
			if id != "" && c.Ack(id) != nil {
				return
			}
		}
		e.confirm(unacked)
		chunks, unacked = nil, nil
	}
}

// RoundTrip implements a Loki server, or for the kind "http" a server that accepts JSON lines or
// arrays.
func (e *processEndpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err == nil {
		err = e.wait(r.Context())
	}
	if err != nil {
		return nil, err
	}
	respond := func(status int, text string, h http.Header) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
	}
	var streams map[string][][]byte
	if e.o.kind == "http" {
		streams, err = requestRecords(body)
	} else {
		streams, err = lokiLines(r.Header, body)
	}
	if err != nil {
		e.o.k.errorf("%s: %v", e.o.name, err)
		return respond(http.StatusInternalServerError, "", nil)
	}
	bad := false
	for _, lines := range streams {
		for _, p := range lines {
			if k, err := e.read(p); err == nil && e.rejects(k) {
				bad = true
			}
		}
	}
	store := func() (as []*arrival) {
		for labels, lines := range streams {
			as = append(as, e.receive(labels, lines...)...)
		}
		return as
	}
	fault := e.pick(9)
	if bad && (fault < 0 || fault == 8) {
		if e.o.kind == "loki" && e.intN(2) == 0 { // Loki's message for a faulty record
			return respond(http.StatusBadRequest, "loghttp.PushRequest.Streams: a line is malformed", nil)
		}
		e.noteDeath() // the reason is unclear: the driver or the output sends delivered records again as a test
		return respond(http.StatusBadRequest, "a line is malformed", nil)
	}
	switch fault {
	case 0:
		if !bad {
			store()
		}
		return nil, syscall.ECONNRESET
	case 1:
		return nil, syscall.ECONNREFUSED
	case 2:
		return respond(http.StatusTooManyRequests, "slow down", http.Header{"Retry-After": {strconv.Itoa(e.intN(3))}})
	case 3:
		return respond(http.StatusInternalServerError, "trouble", nil)
	case 4:
		return respond(http.StatusServiceUnavailable, "trouble", nil)
	case 5:
		return respond(http.StatusUnauthorized, "no", nil)
	case 6:
		e.refuse(slices.Concat(slices.Collect(maps.Values(streams))...)...)
		return respond(http.StatusRequestEntityTooLarge, "too large", nil)
	case 7:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case 8:
		select {
		case <-time.After(time.Duration(e.intN(300)) * time.Millisecond):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	e.confirm(store())
	return respond(http.StatusNoContent, "", nil)
}

// requestRecords returns the records of a request to an "http" server, as one stream.
func requestRecords(body []byte) (map[string][][]byte, error) {
	var recs [][]byte
	if bytes.HasPrefix(body, []byte("[")) {
		var all []json.RawMessage
		if err := json.Unmarshal(body, &all); err != nil {
			return nil, err
		}
		for _, rec := range all {
			recs = append(recs, rec)
		}
	} else {
		for line := range bytes.Lines(body) {
			if !json.Valid(line) {
				return nil, fmt.Errorf("a line is not JSON: %q", line)
			}
			recs = append(recs, line)
		}
	}
	return map[string][][]byte{"": recs}, nil
}

// lokiLines returns the lines of a push request, by the labels of their stream.
func lokiLines(h http.Header, body []byte) (map[string][][]byte, error) {
	if h.Get("Content-Type") == "application/x-protobuf" {
		plain, err := snappy.Decode(nil, body)
		if err != nil {
			return nil, err
		}
		return lokiProtoLines(plain)
	}
	if h.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if body, err = io.ReadAll(z); err != nil {
			return nil, err
		}
	}
	var req struct {
		Streams []struct {
			Stream map[string]string
			Values [][]json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	streams := map[string][][]byte{}
	for _, s := range req.Streams {
		labels := fmt.Sprint(s.Stream)
		for _, v := range s.Values {
			var line string
			if err := json.Unmarshal(v[1], &line); err != nil {
				return nil, err
			}
			streams[labels] = append(streams[labels], []byte(line))
		}
	}
	return streams, nil
}

// protoFields calls f for each length-delimited field of a protobuf message.
func protoFields(b []byte, f func(num int, p []byte) error) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		v, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 {
			return errors.New("protobuf: cut")
		}
		b = b[n+m:]
		if tag&7 == 0 {
			continue
		}
		if tag&7 != 2 || v > uint64(len(b)) {
			return errors.New("protobuf: not a push request")
		}
		if err := f(int(tag>>3), b[:v]); err != nil {
			return err
		}
		b = b[v:]
	}
	return nil
}

func lokiProtoLines(b []byte) (map[string][][]byte, error) {
	streams := map[string][][]byte{}
	err := protoFields(b, func(_ int, s []byte) error {
		labels := ""
		return protoFields(s, func(num int, p []byte) error {
			if num == 1 {
				labels = string(p)
				return nil
			}
			return protoFields(p, func(num int, p []byte) error {
				if num == 2 {
					streams[labels] = append(streams[labels], p)
				}
				return nil
			})
		})
	})
	return streams, err
}

// listen makes e a TCP server that reads lines. It serves connections until the walk ends.
func (e *endpoint) listen(n *testkit.Network, address string) *testkit.Peer {
	return n.Listen(address, func(int) testkit.Behaviour {
		var b testkit.Behaviour
		e.behavior.mu.Lock()
		b.Stall = e.hanging
		e.behavior.mu.Unlock()
		switch e.pick(3) {
		case 0:
			b.Limit = 1 + e.intN(2000)
		case 1:
			b.Chunk = 1 + e.intN(100)
		case 2:
			b.Delay = time.Duration(e.intN(100)) * time.Millisecond
		}
		if b.Stall != nil && b.Limit == 0 {
			b.Limit = 1 + e.intN(2000)
		}
		return b
	})
}

// readFiles returns the lines of a log file and of its rotated files, oldest first.
func readFiles(path string) (lines [][]byte, err error) {
	ext := filepath.Ext(path)
	old, _ := filepath.Glob(strings.TrimSuffix(path, ext) + "-*" + ext)
	slices.Sort(old) // the names contain the time of the rotation
	for _, name := range append(old, path) {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

var forwardCodec = fluent.Codec()

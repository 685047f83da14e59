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

// key names a record: the goroutine that logged it, and its number there.
type key struct{ who, n int }

func (k key) String() string { return fmt.Sprintf("%d.%d", k.who, k.n) }

// tokenOf is the text by which a record is known wherever it turns up, in any form.
// It says itself how long it is and what is in it.
func tokenOf(k key, size int) string {
	p := fmt.Appendf(nil, "K%dN%dL%dX", k.who, k.n, size)
	for i := range size {
		p = append(p, 'a'+byte((k.who*7+k.n*3+i)%26))
	}
	return string(append(p, 'Z'))
}

var token = regexp.MustCompile(`K(\d+)N(\d+)L(\d+)X[a-z]*Z`)

// errMarker says that a record is none that was logged: a Writer made it to say that
// others were dropped, or the search for poison to see whether the server is well.
var errMarker = errors.New("a marker")

// readToken finds the one record in p.
func readToken(p []byte) (key, error) {
	m := token.FindAllSubmatch(p, -1)
	if len(m) == 0 && (bytes.Contains(p, []byte("records dropped")) || bytes.Contains(p, []byte("the server has ended connections"))) {
		return key{}, errMarker
	}
	if len(m) != 1 {
		return key{}, fmt.Errorf("%d records in %.600q", len(m), p)
	}
	who, _ := strconv.Atoi(string(m[0][1]))
	n, _ := strconv.Atoi(string(m[0][2]))
	size, _ := strconv.Atoi(string(m[0][3]))
	k := key{who, n}
	if want := tokenOf(k, min(size, 1<<20)); want != string(m[0][0]) {
		return key{}, fmt.Errorf("torn: %.200q", p)
	}
	return k, nil
}

// readWith is readToken for a record that stands in a form that codec reads.
func readWith(codec batch.Codec) func(p []byte) (key, error) {
	return func(p []byte) (key, error) {
		js := codec.AppendJSON(nil, p, batch.Meta{})
		if !json.Valid(js) || bytes.HasPrefix(js, []byte(`{"raw`)) && codec.ContentType() != "text/plain" {
			return key{}, fmt.Errorf("torn: %.200q", p)
		}
		return readToken(p)
	}
}

// A mood is how something behaves at present: well, or badly in some of its calls, or
// it hangs.
type mood struct {
	mu   sync.Mutex
	rng  *rand.Rand
	p    float64
	hung chan struct{} // not nil: it hangs until this is closed
	deaf bool          // it hangs whatever becomes of a context
	over int           // the life in which it has ended for good; 0: none
}

// end ends it for good, for the process of that life.
func (m *mood) end(life int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = life
}

// ended reports whether m has ended for the process of this life.
func (m *mood) ended(life int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over == life
}

func (m *mood) set(p float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = p
}

func (m *mood) hang(deaf bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hung == nil {
		m.hung, m.deaf = make(chan struct{}), deaf
	}
}

func (m *mood) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = 0
	if m.hung != nil {
		close(m.hung)
		m.hung = nil
	}
}

// wait returns when it does not hang any more, or ctx has ended.
func (m *mood) wait(ctx context.Context) error {
	m.mu.Lock()
	hung, deaf := m.hung, m.deaf
	m.mu.Unlock()
	if hung == nil {
		return nil
	}
	if deaf {
		ctx = context.Background()
	}
	select {
	case <-hung:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pick returns in which of n ways to misbehave, -1 for none.
func (m *mood) pick(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.p == 0 || m.rng.Float64() >= m.p {
		return -1
	}
	return m.rng.IntN(n)
}

func (m *mood) intN(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

// An arrival is a copy of a record that came somewhere.
type arrival struct {
	key    key
	stream string // order is kept within one
	life   int
	acked  bool // its sender has received the acknowledgement
	late   bool // after Close had begun

	control bool // it may be a control record: alone, after the end of a session
}

// An end is where records come: a destination, a fallback, a place for dead letters.
// It outlives the processes that write to it.
type end struct {
	mood
	o    *out
	read func(p []byte) (key, error)
	bad  func(k key) bool // it will never take k

	emu      sync.Mutex
	got      []*arrival
	torn     int         // pieces of records, where they may be
	lateFrom map[key]int // the life from which on a record may come behind later ones
	died     int         // the last life in which a session ended by a panic or a Goexit
}

// A door is an end as one process sees it. When that is dead nothing comes through it.
type door struct {
	*end
	life int
}

func (e *end) door() *door {
	life, _ := e.o.k.now()
	return &door{e, life}
}

func (d *door) dead() bool {
	life, _ := d.o.k.now()
	return life != d.life
}

// wait is mood.wait. It returns an error if the process died meanwhile.
func (d *door) wait(ctx context.Context) error {
	err := d.mood.wait(ctx)
	if d.dead() {
		return testkit.ErrDown
	}
	return err
}

// handlerTimeout is how long a handler may take. What it takes later nobody hears of.
const handlerTimeout = time.Second

// waitHeard is wait for a handler. It reports whether the outlet still listens.
func (d *door) waitHeard(ctx context.Context) (heard bool, err error) {
	began := time.Now()
	err = d.wait(ctx)
	return d.end == d.o.dest || time.Since(began) < handlerTimeout, err
}

// take notes records that came.
func (e *door) take(stream string, recs ...[]byte) (as []*arrival) {
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

func (e *end) arrive(as []*arrival) {
	life, closing := e.o.k.now()
	e.emu.Lock()
	defer e.emu.Unlock()
	for _, a := range as {
		a.life, a.late, a.control = life, closing, len(as) == 1 && e.died == life
		e.got = append(e.got, a)
	}
}

// die notes that a session ends without a word.
func (e *end) die() {
	life, _ := e.o.k.now()
	e.emu.Lock()
	defer e.emu.Unlock()
	e.died = life
}

// suspect notes that recs ended a session. If it is a single one it may be set aside.
func (e *end) suspect(recs ...[]byte) {
	life, _ := e.o.k.now()
	e.exempt(life, recs)
}

// refuse notes that recs were too large. If it is a single one it is refused, and comes
// no more in this life. In the next one it may, if it lies on disk in one piece with
// others that were open when this one ended.
func (e *end) refuse(recs ...[]byte) {
	life, _ := e.o.k.now()
	e.exempt(life+1, recs)
}

// exempt notes from which life on recs, if it is a single one, may come late.
func (e *end) exempt(life int, recs [][]byte) {
	if len(recs) != 1 {
		return
	}
	k, err := e.read(recs[0])
	if err != nil {
		return
	}
	e.emu.Lock()
	defer e.emu.Unlock()
	if e.lateFrom == nil {
		e.lateFrom = map[key]int{}
	}
	if l, ok := e.lateFrom[k]; !ok || life < l {
		e.lateFrom[k] = life
	}
}

// mayBeLate reports whether a, which came to e, may come behind later ones.
func (e *end) mayBeLate(a *arrival) bool {
	e.emu.Lock()
	defer e.emu.Unlock()
	life, ok := e.lateFrom[a.key]
	return ok && a.life >= life
}

// confirm records that the sender knows that these records arrived.
func (e *end) confirm(as []*arrival) {
	_, closing := e.o.k.now()
	e.emu.Lock()
	defer e.emu.Unlock()
	for _, a := range as {
		a.acked, a.late = true, closing
	}
}

// forget notes that what was told in this life may not be known any more.
func (e *end) forget() {
	life, _ := e.o.k.now()
	e.emu.Lock()
	defer e.emu.Unlock()
	for _, a := range e.got {
		a.acked = a.acked && a.life != life
	}
}

// arrivals returns what came so far.
func (e *end) arrivals() []*arrival {
	if e == nil {
		return nil
	}
	e.emu.Lock()
	defer e.emu.Unlock()
	return slices.Clone(e.got)
}

// dataOf returns the records of b.
func dataOf(b *batch.Batch) (recs [][]byte) {
	for _, r := range b.All() {
		recs = append(recs, bytes.Clone(r.Data))
	}
	return recs
}

// answer makes e a destination, by way of the sinks of package testkit.
func (e *door) answer(async bool) testkit.Answer {
	return func(ctx context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		heard, err := e.waitHeard(ctx)
		if err != nil {
			return nil, batch.FailedOutcome(err)
		}
		confirm := func(as []*arrival) {
			if heard {
				e.confirm(as)
			}
		}
		recs := dataOf(b)
		if e.ended(e.life) {
			return nil, batch.Outcome{Open: batch.All(), Why: errors.New("nobody will ever be there again"), Advice: batch.Gone}
		}
		var bad []int
		for i, p := range recs {
			if k, err := e.read(p); err == nil && e.bad(k) {
				bad = append(bad, i)
			}
		}
		well := func() ([]int, batch.Outcome) {
			switch {
			case len(bad) == 0:
				confirm(e.take("", recs...))
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
			confirm(e.take("", good...))
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
				e.take("", recs...)
			}
			return nil, batch.FailedOutcome(errors.New("the answer was lost"))
		case 1:
			n := e.intN(len(recs) + 1)
			if len(bad) > 0 {
				n = min(n, bad[0])
			}
			confirm(e.take("", recs[:n]...))
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
			e.die()
			panic("on purpose")
		case 11:
			e.suspect(recs...)
			e.die()
			e.forget() // what it said of other parts of the batch ends with the goroutine
			runtime.Goexit()
		}
		return nil, batch.FailedOutcome(testkit.ErrDown)
	}
}

// HandleError makes e a deliver.ErrorHandler.
func (e *door) HandleError(_ error, b *batch.Batch) batch.Outcome {
	heard, err := e.waitHeard(context.Background())
	if err != nil {
		return batch.FailedOutcome(err)
	}
	recs := dataOf(b)
	take := func(n int) {
		if as := e.take("", recs[:n]...); heard {
			e.confirm(as)
		}
	}
	switch e.pick(4) {
	case -1:
		take(len(recs))
		return batch.Outcome{}
	case 0:
		n := e.intN(len(recs) + 1)
		take(n)
		return batch.Outcome{Open: batch.From(n), Why: errors.New("it has enough")}
	case 1:
		panic("on purpose")
	}
	return batch.FailedOutcome(errors.New("it has enough"))
}

// A page is an io.Writer for one process, whose lines come to an end.
type page struct {
	*door
	mu      sync.Mutex
	text    []byte
	direct  bool // written to by callers, one record at a time
	writing bool
}

func (p *page) Write(b []byte) (int, error) {
	if err := p.wait(context.Background()); err != nil {
		return 0, err
	}
	p.mu.Lock()
	if p.writing {
		p.o.k.errorf("%s: two writes at a time", p.o.name)
	}
	p.writing = true
	p.mu.Unlock()
	n, err := len(b), error(nil)
	defer func() {
		p.mu.Lock()
		p.writing = false
		p.text = append(p.text, b[:n]...)
		p.mu.Unlock()
		p.lines()
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

// lines records the complete lines. A torn line is not yet an error, see [out.check].
func (p *page) lines() {
	p.mu.Lock()
	end := bytes.LastIndexByte(p.text, '\n') + 1
	whole := bytes.Clone(p.text[:end])
	p.text = p.text[end:]
	p.mu.Unlock()
	for line := range bytes.Lines(whole) {
		if _, err := p.read(line); err != nil && err != errMarker && (p.direct || p.door.end != p.o.dest) {
			p.emu.Lock()
			p.torn++
			p.emu.Unlock()
			continue
		}
		p.confirm(p.take("", line))
	}
}

// last notes a line that is whole but for its end, which would come before the next one.
func (p *page) last() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.read(p.text); err == nil {
		p.confirm(p.take("", p.text))
		p.text = nil
	}
}

// ackTimeout is how long a client waits for a Forward server.
const ackTimeout = 2 * time.Second

// serve is a Forward server.
func (e *door) serve(_ int, c *testkit.ForwardConn) {
	var held []string
	var untold []*arrival
	slow := false // the client may have given up the connection, and dropped what is on it
	for {
		m, err := c.Next()
		began := time.Now()
		if err != nil || e.wait(context.Background()) != nil {
			return
		}
		as := func() []*arrival {
			if slow = slow || time.Since(began) >= ackTimeout; slow {
				for _, rec := range m.Entries {
					e.suspect(rec)
				}
			}
			return e.take("", m.Entries...)
		}
		switch e.pick(8) {
		case -1:
			untold, held = append(untold, as()...), append(held, m.Chunk)
		case 0: // it dies with the frame
			return
		case 1: // it dies with the answer
			as()
			return
		case 2: // it forgets to answer
			as()
			continue
		case 3: // it answers later
			untold, held = append(untold, as()...), append(held, m.Chunk)
			continue
		case 4:
			_, _ = c.Write([]byte("\xc1garbage"))
			return
		case 5:
			time.Sleep(time.Duration(e.intN(4000)) * time.Millisecond)
			untold, held = append(untold, as()...), append(held, m.Chunk)
		case 6:
			if c.Ack("somebody else's") != nil {
				return
			}
			untold, held = append(untold, as()...), append(held, m.Chunk)
		case 7:
			c.Reset()
			return
		}
		for _, id := range held {
			if id != "" && c.Ack(id) != nil {
				return
			}
		}
		e.confirm(untold)
		held, untold = nil, nil
	}
}

// RoundTrip makes e a Loki, or a server of lines or arrays of JSON.
func (e *door) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err == nil {
		err = e.wait(r.Context())
	}
	if err != nil {
		return nil, err
	}
	say := func(status int, text string, h http.Header) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
	}
	var streams map[string][][]byte
	if e.o.kind == "http" {
		streams, err = posted(body)
	} else {
		streams, err = pushed(r.Header, body)
	}
	if err != nil {
		e.o.k.errorf("%s: %v", e.o.name, err)
		return say(http.StatusInternalServerError, "", nil)
	}
	bad := false
	for _, lines := range streams {
		for _, p := range lines {
			if k, err := e.read(p); err == nil && e.bad(k) {
				bad = true
			}
		}
	}
	store := func() (as []*arrival) {
		for labels, lines := range streams {
			as = append(as, e.take(labels, lines...)...)
		}
		return as
	}
	what := e.pick(9)
	if bad && (what < 0 || what == 8) {
		if e.o.kind == "loki" && e.intN(2) == 0 { // its own words: the record is at fault
			return say(http.StatusBadRequest, "loghttp.PushRequest.Streams: a line is malformed", nil)
		}
		e.die() // whether others are taken is asked, by the driver or by what holds it
		return say(http.StatusBadRequest, "a line is malformed", nil)
	}
	switch what {
	case 0:
		if !bad {
			store()
		}
		return nil, syscall.ECONNRESET
	case 1:
		return nil, syscall.ECONNREFUSED
	case 2:
		return say(http.StatusTooManyRequests, "slow down", http.Header{"Retry-After": {strconv.Itoa(e.intN(3))}})
	case 3:
		return say(http.StatusInternalServerError, "trouble", nil)
	case 4:
		return say(http.StatusServiceUnavailable, "trouble", nil)
	case 5:
		return say(http.StatusUnauthorized, "no", nil)
	case 6:
		e.refuse(slices.Concat(slices.Collect(maps.Values(streams))...)...)
		return say(http.StatusRequestEntityTooLarge, "too large", nil)
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
	return say(http.StatusNoContent, "", nil)
}

// posted returns the records of a request, as one stream.
func posted(body []byte) (map[string][][]byte, error) {
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

// pushed returns the lines of a push request by the labels of their stream.
func pushed(h http.Header, body []byte) (map[string][][]byte, error) {
	if h.Get("Content-Type") == "application/x-protobuf" {
		plain, err := snappy.Decode(nil, body)
		if err != nil {
			return nil, err
		}
		return pushedProto(plain)
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

// protoFields calls f with the fields of a message that have a length.
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

func pushedProto(b []byte) (map[string][][]byte, error) {
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

// listen makes e a peer that reads lines. It serves connections until the walk's end.
func (e *end) listen(n *testkit.Network, address string) *testkit.Peer {
	return n.Listen(address, func(int) testkit.Behaviour {
		var b testkit.Behaviour
		e.mood.mu.Lock()
		b.Stall = e.hung
		e.mood.mu.Unlock()
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

// readFiles returns the lines of a log file and of those that it was moved aside to,
// oldest first.
func readFiles(path string) (lines [][]byte, err error) {
	ext := filepath.Ext(path)
	old, _ := filepath.Glob(strings.TrimSuffix(path, ext) + "-*" + ext)
	slices.Sort(old) // the time is in the name
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

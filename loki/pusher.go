package loki

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/gzip"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// A Pusher pushes entries to Loki. It is the [batch.Sink] at the end of a [Sink],
// behind a slab.Writer and a deliver.Engine, and owns the [Encoder] whose records
// it takes. All methods may be called from any goroutine. A Pusher starts no
// goroutine but those of a Send, which end with it.
type Pusher struct {
	c       Config
	streams *registry
	enc     *Encoder
	client  *http.Client
	own     bool // the client is of our making
	headers headers
	secrets []string
	slots   chan struct{} // one taken for each request under way
	pushes  chan *push    // kept for reuse
	bufs    bufStack
	known   refusals
	moves   moves

	requests, failed, splits, wireBytes, bodyBytes atomic.Uint64
	unreachable                                    atomic.Bool
	lastErr                                        atomic.Pointer[string]
	reasons                                        [Reasons]atomic.Uint64
}

// NewPusher returns a Pusher, for those who wire memory and delivery themselves;
// others want [New]. The error names everything that is wrong with c. No
// connection is made.
func NewPusher(c Config) (*Pusher, error) {
	c, err := c.resolve()
	if err != nil {
		return nil, err
	}
	s := &Pusher{c: c, streams: newRegistry(c.MaxStreams, c.Nudge)}
	if c.Client != nil {
		client := *c.Client
		client.CheckRedirect = noRedirect
		s.client = &client
	} else {
		if s.client, err = newClient(&c); err != nil {
			return nil, err
		}
		s.own = true
	}
	if err := s.headers.init(&s.c); err != nil {
		return nil, err
	}
	for _, secret := range []string{c.Password, c.BearerToken, basic(c.Username, c.Password)} {
		if secret != "" {
			s.secrets = append(s.secrets, secret)
		}
	}
	for _, value := range c.Headers {
		if len(value) >= 4 {
			s.secrets = append(s.secrets, value)
		}
	}
	if query := c.endpoint.RawQuery; len(query) >= 4 { // what a proxy asks for
		s.secrets = append(s.secrets, query)
		for _, values := range c.endpoint.Query() {
			for _, value := range values {
				if len(value) >= 4 {
					s.secrets = append(s.secrets, value)
				}
			}
		}
	}
	s.slots = make(chan struct{}, c.Concurrency)
	s.pushes = make(chan *push, c.Concurrency)
	s.enc = newEncoder(s)
	if err := s.reserve(); err != nil {
		return nil, err
	}
	return s, nil
}

// reserve makes the memory for one batch of the usual size, so that sending
// allocates next to nothing from the first record on.
func (s *Pusher) reserve() (err error) {
	usual := min(s.c.BatchBytes, s.c.MaxRequestBytes)
	usual += usual/16 + 8<<10 // the last record of a batch exceeds it
	if s.bufs.pool, err = newPool(usual, s.c.MaxRequestBytes, s.c.Concurrency); err != nil {
		return fmt.Errorf("loki: %w", err)
	}
	b := &requestBuf{in: make([]byte, 4<<10)}
	b.own[0] = make([]byte, usual)
	switch s.c.Wire {
	case Protobuf:
		b.own[1] = make([]byte, snappy.MaxEncodedLen(usual))
		b.spans = make([][]byte, 0, 64)
		b.heads = make([]byte, 0, 1<<10)
	case JSONGzip:
		b.own[1] = make([]byte, gzipBound(usual))
		b.zip, _ = gzip.NewWriterLevel(b, gzip.BestSpeed)
		b.zip.Write(b.own[0][:1]) // it makes its tables now
		b.out = nil
	}
	s.bufs.put(b)
	const short = 128 // bytes of a short record
	n := s.c.BatchBytes/short + 64
	p := newPush()
	p.recs, p.fates, p.order = make([]rec, 0, n), make([]fate, 0, n), make([]int32, 0, n)
	p.groups = make([]group, 0, 16)
	s.pushes <- p
	return nil
}

func newPush() *push { return &push{groupOf: map[uint32]int32{}} }

// getPush returns an empty push for release.
func (s *Pusher) getPush() *push {
	select {
	case p := <-s.pushes:
		return p
	default:
		return newPush()
	}
}

// Encoder returns the encoder of the records this Pusher takes.
func (s *Pusher) Encoder() encode.Encoder { return s.enc }

// Codec reads the records this Pusher takes.
func (s *Pusher) Codec() batch.Codec { return s.enc.codec }

// Name is Config.Name.
func (s *Pusher) Name() string { return s.c.Name }

// Limits are those of a batch.
func (s *Pusher) Limits() batch.Limits {
	return batch.Limits{Bytes: s.c.BatchBytes, Records: s.c.BatchRecords, Age: s.c.BatchAge}
}

// Close closes idle connections of a client that the Pusher has made. It may be
// called more than once.
func (s *Pusher) Close(context.Context) error {
	if s.own {
		s.client.CloseIdleConnections()
	}
	return nil
}

// fate is what became of one record of a Send.
type fate uint8

const (
	open    fate = iota // not settled: may be sent again
	stored              // Loki has it
	refused             // it will never be taken
	unclear             // it, or another of its request, will never be taken
)

// rec is one record of a Send.
type rec struct {
	data  []byte // belongs to the batch
	time  int64
	line  int32
	group int32
	next  bool // data lies right behind that of the record before, in one piece of memory
}

// A group is the records of one stream in one Send.
type group struct {
	st    *stream
	level int // of its first record
	order []int32
	bytes int
	err   error // why some are open or unclear; a *batch.SendError, or one to retry
}

// A push is the state of one Send.
type push struct {
	recs    []rec
	fates   []fate
	groups  []group
	order   []int32 // what the groups' orders are made of
	groupOf map[uint32]int32
	why     error // of the first record refused
	mu      sync.Mutex

	searched atomic.Int64        // requests halved to find what was refused
	moved    map[int32]recordKey // records that go to another stream; guarded by mu
	refused  []refusal           // records that will not be taken; guarded by mu
}

// Send pushes b: per stream one request, up to Config.Concurrency of them at a
// time, streams in the order of their first records and the records of each by
// their time, those of one time in the order they came. It returns
//
//	nil              everything is stored
//	Reject           the named records were refused, by the limits of the Config
//	                 or by Loki; all others are stored
//	Permanent        Loki refused, and does not say which record it means
//	Partial          the named records are open; all others are stored
//	RetryAfter       nothing was stored: no answer, 429 or 5xx
//	Fatal            Loki refuses all: 401, 403, 404, 260, a redirect; a 401 or 403 of
//	                 one tenant, while others are let in, is a Reject
//
// What was too large for one request has been split before Send returns.
func (s *Pusher) Send(ctx context.Context, b *batch.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	if b.Codec != nil && b.Codec.ContentType() != s.enc.codec.ContentType() {
		return batch.Permanent(fmt.Errorf("loki: cannot send: records are %s, this sink takes %s; use its own encoder",
			b.Codec.ContentType(), s.enc.codec.ContentType()))
	}
	p := s.getPush()
	defer s.release(p)
	s.gather(p, b)
	if s.c.Pack {
		s.sendPacked(ctx, p)
	} else {
		s.sendGroups(ctx, p)
	}
	s.remember(p)
	return p.result()
}

func (s *Pusher) release(p *push) {
	if cap(p.recs) > 1<<16 {
		return
	}
	clear(p.recs)
	clear(p.groups)
	p.recs, p.fates, p.groups, p.order, p.why = p.recs[:0], p.fates[:0], p.groups[:0], p.order[:0], nil
	p.searched.Store(0)
	clear(p.moved)
	clear(p.refused)
	p.refused = p.refused[:0]
	select {
	case s.pushes <- p:
	default:
	}
}

// gather sorts the records of b by stream and time and finds those that will not
// be taken.
func (s *Pusher) gather(p *push, b *batch.Batch) {
	now := time.Now().UnixNano()
	s.known.sweep(now)
	clear(p.groupOf)
	p.fates = slices.Grow(p.fates, b.Len())[:b.Len()]
	clear(p.fates)
	p.recs = slices.Grow(p.recs, b.Len())
	var st *stream // of the record before
	last, g := uint32(0), int32(-1)
	for i := range b.Runs {
		run := &b.Runs[i]
		for k := range run.Len() {
			slot := run.Slot(k)
			r := rec{data: run.Record(k), time: slot.Time, group: -1, next: k > 0}
			if st == nil || slot.Stream != last {
				st, last, g = s.streams.get(slot.Stream), slot.Stream, -1
			}
			line, why, err := s.inspect(&r, st, now)
			if before := s.refusedBefore(p, st, &r); before != nil {
				err = before
			} else if err != nil {
				s.noteRefused(p, int32(len(p.recs)), st, &r, why, err)
			}
			if err != nil {
				p.fates[len(p.recs)] = refused
				if p.why == nil {
					p.why = err
				}
				p.recs = append(p.recs, r)
				continue
			}
			if g < 0 {
				var ok bool
				if g, ok = p.groupOf[last]; !ok {
					g = int32(len(p.groups))
					p.groups = append(p.groups, group{st: st, level: levelIndex(slot.Meta().Level)})
					p.groupOf[last] = g
				}
			}
			r.line, r.group = int32(line), g
			p.groups[g].bytes++ // a count, until there is an order
			p.recs = append(p.recs, r)
		}
	}
	p.order = slices.Grow(p.order, len(p.recs))[:len(p.recs)]
	at := 0
	for i := range p.groups {
		g := &p.groups[i]
		n := g.bytes
		g.order, g.bytes = p.order[at:at:at+n], 0
		at += n
	}
	for i := range p.recs {
		r := &p.recs[i]
		if r.group < 0 {
			continue
		}
		g := &p.groups[r.group]
		g.order = append(g.order, int32(i))
		g.bytes += len(r.data)
	}
	for i := range p.groups {
		p.sort(p.groups[i].order)
	}
}

// sort orders records by time, and those of one time by their order in the batch.
func (p *push) sort(order []int32) {
	for i := 1; i < len(order); i++ {
		if p.recs[order[i]].time < p.recs[order[i-1]].time {
			slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(p.recs[a].time, p.recs[b].time) })
			return
		}
	}
}

// inspect returns the length of the line, or why the record will not be taken.
func (s *Pusher) inspect(r *rec, st *stream, now int64) (line int, why Reason, err error) {
	c := &s.c
	var ok bool
	if s.enc.json {
		line, ok = checkJSON(r.data)
		if ok && line > c.MaxLine { // escapes are longer than what they stand for
			line = lineLenJSON(r.data)
		}
	} else {
		line, ok = checkProto(r.data)
	}
	switch {
	case !ok:
		return 0, Malformed, malformed(r.data)
	case st == nil || st.broken:
		return 0, Malformed, errors.New("loki: cannot send a record: its stream is unknown; write with the encoder of its destination")
	case line > c.MaxLine:
		return 0, LineTooLong, fmt.Errorf("loki: cannot send a line of %d bytes: max_line is %d", line, c.MaxLine)
	case c.MaxAge >= 0 && r.time < now-int64(c.MaxAge):
		return 0, TooOld, fmt.Errorf("loki: cannot send a record of %s: it is older than max_age (%v)", stamp(r.time), c.MaxAge)
	case c.MaxFuture >= 0 && r.time > now+int64(c.MaxFuture):
		return 0, TooNew, fmt.Errorf("loki: cannot send a record of %s: it is further in the future than max_future (%v)", stamp(r.time), c.MaxFuture)
	}
	return line, 0, nil
}

func stamp(t int64) string { return time.Unix(0, t).UTC().Format(time.RFC3339) }

// result tells the caller of Send what became of the records.
func (p *push) result() error {
	var n [4]int
	for _, f := range p.fates {
		n[f]++
	}
	if n[open]+n[refused]+n[unclear] == 0 {
		return nil
	}
	if n[open]+n[unclear] == 0 {
		return batch.Reject(p.why, p.indexes(refused)...)
	}
	if n[unclear] == len(p.fates) {
		return batch.Permanent(p.cause())
	}
	// What was refused is refused again when it is sent again; so all that is
	// not stored is said to be open.
	cause := p.cause()
	e := batch.Inspect(cause)
	if n[stored] == 0 && n[unclear] == 0 {
		return cause
	}
	if n[stored] == 0 { // some are unclear and some not: the next attempt tells
		return batch.RetryAfter(e.Err, e.After)
	}
	out := batch.SendError{Kind: batch.KindPartial, Err: e.Err, After: e.After, Status: e.Status, Records: p.indexes(open, refused, unclear)}
	return &out
}

// cause returns the gravest of the groups' errors: with the longest wait of those
// that are to be sent again, and fatal only if all are.
func (p *push) cause() error {
	var retry, fatal, other error
	var after time.Duration
	for i := range p.groups {
		err := p.groups[i].err
		if err == nil {
			continue
		}
		switch e := batch.Inspect(err); e.Kind {
		case batch.KindFatal:
			fatal = err
		case batch.KindReject:
			other = err
		default:
			after = max(after, e.After)
			if retry == nil {
				retry = err
			}
		}
	}
	switch {
	case retry != nil:
		e := batch.Inspect(retry)
		e.After = after
		return &e
	case fatal != nil:
		return fatal
	case other != nil:
		return other
	}
	return p.why
}

func (p *push) indexes(fates ...fate) (out []int) {
	for i, f := range p.fates {
		if slices.Contains(fates, f) {
			out = append(out, i)
		}
	}
	return out
}

// refuse notes that a record will not be taken.
func (s *Pusher) refuse(p *push, i int32, why Reason, err error) {
	p.mu.Lock()
	if p.why == nil {
		p.why = err
	}
	p.mu.Unlock()
	p.fates[i] = refused
	r := &p.recs[i]
	s.noteRefused(p, i, p.groups[r.group].st, r, why, err)
}

// redact takes what is secret out of a text that came from outside.
func (s *Pusher) redact(text string) string {
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, "[secret]")
	}
	if t := s.headers.token.Load(); t != nil && *t != "" {
		text = strings.ReplaceAll(text, *t, "[secret]")
	}
	return text
}

// Accepts reports whether records of that content type can be sent.
func (s *Pusher) Accepts(contentType string) bool { return contentType == s.enc.codec.ContentType() }

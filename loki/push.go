package loki

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/values"
)

// A client pushes entries and reads the responses. It starts no goroutines except within
// a Send, which ends them.
type client struct {
	c             *Config
	streams       *registry
	observed      *observations
	reports       *callback.Reporter
	http          *http.Client
	own           bool // http was created by newClient
	headers       headers
	secrets       []string
	pushes        chan *push // one, kept for reuse
	bufs          bufStack
	moves         moves
	recentStreams recentStreams

	requests, failed, splits, paced, wireBytes, bodyBytes atomic.Uint64

	fits          atomic.Int64 // size limit of requests with several streams, in bytes; at most MaxRequestBytes
	spoken        atomic.Bool  // a server has responded in HTTP
	unreachable   atomic.Bool
	stamped       atomic.Int64 // the last time given to a record that was too old, in Unix ns
	lastOldReport atomic.Int64 // time of the last report of errOld, in Unix ns
	lastErr       atomic.Pointer[string]
}

// newClient returns a client. Errors are about files named in c.
func newClient(c *Config, streams *registry, n *observations, r *callback.Reporter) (*client, error) {
	s := &client{c: c, streams: streams, observed: n, reports: r, pushes: make(chan *push, 1)}
	s.fits.Store(int64(c.Limits.MaxRequestBytes))
	var err error
	if s.http, err = httpsend.Client("loki", &c.HTTP, c.Concurrency); err != nil {
		return nil, err
	}
	s.own = c.HTTP.Client == nil
	if err := s.headers.init(c); err != nil {
		return nil, err
	}
	s.secrets = []string{c.HTTP.Password, c.HTTP.BearerToken, httpsend.Basic(c.HTTP.Username, c.HTTP.Password), c.endpoint.RawQuery} // a proxy may require a secret query
	for name, value := range c.HTTP.Headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			_, token, _ := strings.Cut(value, " ")
			s.secrets = append(s.secrets, value, token)
		} else if len(value) >= 4 {
			s.secrets = append(s.secrets, value)
		}
	}
	for _, values := range c.endpoint.Query() {
		for _, value := range values {
			if len(value) >= 4 {
				s.secrets = append(s.secrets, value)
			}
		}
	}
	if err := s.reserve(); err != nil {
		return nil, err
	}
	return s, nil
}

// reserve allocates the memory for one batch of the usual size, so that sending hardly
// allocates from the first record on.
func (s *client) reserve() (err error) {
	usual := min(s.c.BatchBytes, s.c.Limits.MaxRequestBytes)
	usual += usual/16 + 8<<10 // the last record of a batch exceeds it
	if s.bufs.pool, err = newPool(usual, s.c.Limits.MaxRequestBytes, s.c.Concurrency); err != nil {
		return fmt.Errorf("loki: %w", err)
	}
	b := &requestBuf{in: make([]byte, 4<<10)}
	b.own[0] = make([]byte, usual)
	switch s.c.Wire {
	case wireProtobuf:
		b.own[1] = make([]byte, snappy.MaxEncodedLen(usual))
		b.spans = make([][]byte, 0, 64)
		b.heads = make([]byte, 0, 1<<10)
	case wireGzip:
		b.own[1] = make([]byte, gzipBound(usual))
		b.zip = compression.NewGzip()
		b.zip.Reset(b)
		b.zip.Write(b.own[0][:1]) // allocates the tables of the compressor
		b.out = nil
	}
	s.bufs.put(b)
	const short = 128 // bytes of a short record
	n := s.c.BatchBytes/short + 64
	p := newPush()
	p.recs, p.outcomes, p.order = make([]rec, 0, n), make([]outcome, 0, n), make([]int32, 0, n)
	p.groups = make([]group, 0, 16)
	s.pushes <- p
	return nil
}

// hidden returns the credentials, which must not appear in errors.
func (s *client) hidden() []string {
	if t := s.headers.token.Load(); t != nil {
		return append(slices.Clip(s.secrets), *t)
	}
	return s.secrets
}

// hiddenMark replaces a credential.
const hiddenMark = "[secret]"

// close closes the idle connections that this package created.
func (s *client) close() {
	s.reports.Wait(context.Background())
	s.bufs.forget()
	if s.own {
		s.http.CloseIdleConnections()
	}
}

// A session is the use of a client by an outlet.
type session struct {
	*client
	life deliver.Life
}

// Send pushes b and reports the outcome. The streams of b share requests as far as the
// limits of a request and the state of the streams allow; see [trust]. The records of each
// stream are sorted by time, records of the same time by arrival. Accepted records are not
// sent again, unless a response is ambiguous. If a record remains open, later ones of its
// stream remain open and are not sent.
//
// If the session ends while a request has no response, the outcome of b is not reported,
// because Loki may have stored it.
//
// A refusal with an unknown text may come from a faulty server or be caused by a record.
// It leaves records open, and in doubt once the batch has no other problem
// ([batch.Doubt]).
func (s *session) Send(b *batch.Batch) error {
	ctx := s.life.Context()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if o, known := s.send(ctx, b); known {
		s.life.Answer(b, o)
	}
	return nil
}

// Close closes idle connections. No request is in flight, because Send has returned.
func (s *session) Close() { s.close() }

// An outcome is the state of one record of a Send.
type outcome uint8

const (
	open    outcome = iota // not settled: may be sent again
	stored                 // Loki has it
	refused                // it will never be accepted
)

// rec is one record of a Send.
type rec struct {
	data  []byte // belongs to the batch
	time  int64
	line  int32
	group int32
	next  bool // data directly follows the data of the previous record in memory
}

// A group is the records of one stream in one Send.
type group struct {
	st    *stream
	level int // level of its first record
	order []int32
	bytes int
	place place
	stop  answer // reason of open records; verdict accepted if there are none
}

// place describes how the records of a group share requests.
type place uint8

const (
	alone  place = iota // in requests without other streams
	shares              // in a request with other streams
	placed              // in a request with other streams that already contains it
)

// A push is the state of one Send.
type push struct {
	form     form
	recs     []rec
	outcomes []outcome
	groups   []group
	order    []int32 // memory of the orders of all groups
	groupOf  map[uint32]int32
	segs     []segment // of all requests, concatenated
	ends     []int     // end of each request in segs

	mu      sync.Mutex
	why     error                 // of the first record refused
	whys    map[reason]error      // of the first of each reason
	reasons map[int32]reason      // of refused records
	spared  map[int32]bool        // refused records that become no dead letters
	stamped map[int32]bool        // records that have the current time, see restamp
	moved   map[int32][]recordKey // keys of the record in client.moves
}

func newPush() *push { return &push{groupOf: map[uint32]int32{}} }

// getPush returns an empty push for release.
func (s *client) getPush() *push {
	select {
	case p := <-s.pushes:
		return p
	default:
		return newPush()
	}
}

func (s *client) release(p *push) {
	if cap(p.recs) > 1<<16 {
		return
	}
	clear(p.recs)
	clear(p.groups)
	clear(p.segs)
	p.recs, p.outcomes, p.groups, p.order, p.why = p.recs[:0], p.outcomes[:0], p.groups[:0], p.order[:0], nil
	clear(p.whys)
	clear(p.reasons)
	clear(p.spared)
	clear(p.stamped)
	clear(p.moved)
	select {
	case s.pushes <- p:
	default:
	}
}

// send pushes b and returns its outcome, if known.
func (s *client) send(ctx context.Context, b *batch.Batch) (o batch.Outcome, known bool) {
	f, err := formOfBatch(b)
	if err != nil {
		return batch.FailedOutcome(batch.Fatal(err)), true
	}
	p := s.getPush()
	defer s.release(p)
	p.form = f
	s.gather(p, b)
	s.sendGroups(ctx, p)
	return s.outcome(ctx, p)
}

// formOfBatch returns the form of the entries of b.
func formOfBatch(b *batch.Batch) (form, error) {
	contentType := ""
	if b.Codec != nil {
		contentType = b.Codec.ContentType()
	}
	if f, ok := formNamed(contentType); ok {
		return f, nil
	}
	return 0, fmt.Errorf("loki: cannot send: records are of type %q, this destination accepts %s and %s; use its encoder and codec",
		contentType, contentTypeProtobuf, contentTypeJSON)
}

// gather sorts the records of b by stream and time and finds the records to refuse.
func (s *client) gather(p *push, b *batch.Batch) {
	now := time.Now().UnixNano()
	clear(p.groupOf)
	p.outcomes = slices.Grow(p.outcomes, b.Len())[:b.Len()]
	clear(p.outcomes)
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
			line, why, err := s.inspect(p.form, &r, st, now)
			if why == tooOld && s.c.Limits.TooOld == oldIsNow {
				s.restamp(p, int32(len(p.recs)), &r, st)
			} else if err != nil {
				n := int32(len(p.recs))
				p.recs = append(p.recs, r)
				s.refuse(p, n, why, err)
				continue
			}
			if g < 0 {
				var ok bool
				if g, ok = p.groupOf[last]; !ok {
					g = int32(len(p.groups))
					p.groups = append(p.groups, group{st: st, level: values.LevelIndex(slog.Level(slot.Level))})
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

// sort orders records by time, and records of the same time by their order in the batch.
func (p *push) sort(order []int32) {
	for i := 1; i < len(order); i++ {
		if p.recs[order[i]].time < p.recs[order[i-1]].time {
			slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(p.recs[a].time, p.recs[b].time) })
			return
		}
	}
}

// inspect returns the length of the line, or the reason for refusing the record.
func (s *client) inspect(f form, r *rec, st *stream, now int64) (line int, why reason, err error) {
	c := s.c
	line, ok := f.check(r.data, c.Limits.MaxLine)
	switch {
	case !ok:
		return 0, malformed, malformedError(r.data)
	case st == nil:
		return 0, malformed, denials[malformed]
	case st.broken:
		return 0, st.denial, denials[st.denial]
	case line > c.Limits.MaxLine:
		return 0, lineTooLong, fmt.Errorf("loki: cannot send a line of %d bytes: max_line is %d", line, c.Limits.MaxLine)
	case c.Limits.MaxAge >= 0 && r.time < now-int64(c.Limits.MaxAge):
		return line, tooOld, fmt.Errorf("loki: cannot send a record of %s: it is older than max_age (%v)", stamp(r.time), c.Limits.MaxAge)
	case c.Limits.MaxFuture >= 0 && r.time > now && r.time-now > int64(c.Limits.MaxFuture):
		return 0, tooNew, fmt.Errorf("loki: cannot send a record of %s: it is further in the future than max_future (%v)", stamp(r.time), c.Limits.MaxFuture)
	}
	return line, 0, nil
}

// denials are the errors for records whose stream cannot exist in Loki.
var denials = map[reason]error{
	malformed:   errors.New("loki: cannot send a record: its stream is unknown; use the encoder of its destination"),
	badTenant:   errors.New("loki: cannot send a record: the tenant in its metadata is not a valid name (150 letters, digits and !-_.*'() at most, and neither . nor ..)"),
	streamsFull: errors.New("loki: cannot send a record: the tenant in its metadata is new, but Config.MaxStreams streams exist already"),
}

func stamp(t int64) string { return time.Unix(0, t).UTC().Format(time.RFC3339) }

// refuse records that a record is refused.
func (s *client) refuse(p *push, i int32, why reason, err error) {
	s.observed.note(why)
	p.outcomes[i] = refused
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		p.why = err
	}
	if p.whys == nil {
		p.whys, p.reasons = map[reason]error{}, map[int32]reason{}
	}
	if p.whys[why] == nil {
		p.whys[why] = err
	}
	p.reasons[i] = why
	if s.c.Limits.TooOld == oldIsDropped && ofAge(why) {
		if p.spared == nil {
			p.spared = map[int32]bool{}
		}
		p.spared[i] = true
	}
	s.forget(p, i)
}

// store records that records are stored.
func (s *client) store(p *push, order []int32) {
	for _, i := range order {
		p.outcomes[i] = stored
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.moved) > 0 {
		for _, i := range order {
			s.forget(p, i)
		}
	}
}

// outcome returns the outcome of the records of p. It is unknown if the session ended before every
// request had a response.
func (s *client) outcome(ctx context.Context, p *push) (o batch.Outcome, known bool) {
	var n [3]int
	for _, f := range p.outcomes {
		n[f]++
	}
	if n[refused] > 0 {
		o.Refused, o.Refusal = p.refusal()
	}
	if n[open] == 0 {
		return o, true
	}
	o.Open = batch.All()
	if n[open] < len(p.outcomes) {
		o.Open = batch.Of(p.indexes(open)...)
	}
	gravest := math.MaxInt
	o.Advice = batch.Doubt
	for i := range p.groups {
		g := &p.groups[i]
		switch g.stop.verdict {
		case accepted:
			continue
		case unknownText: // the advice of other groups has precedence
			if o.Why == nil {
				o.Why = g.stop.err
			}
			continue
		}
		if g.stop.verdict == unanswered && ctx.Err() != nil {
			return o, false
		}
		a := s.advise(g)
		rank := slices.Index(ranks[:], a)
		if rank < gravest {
			gravest, o.Advice, o.Why, o.After = rank, a, g.stop.err, 0
		}
		if rank == gravest {
			o.After = max(o.After, g.stop.after)
			if g.stop.verdict == unanswered { // others that were not stored do not affect this one
				o.Why = g.stop.err
			}
		}
	}
	return o, true
}

// ranks lists advice by precedence. The first advice of any stream of a batch applies to all its
// open records. Streams with other advice repeat it after the records are sent again. So records
// are split or held only if nothing else is wrong.
var ranks = [...]batch.Advice{batch.Again, batch.Smaller, batch.Search, batch.Hold, batch.HoldStreams}

// advise returns how the open records of a group are sent again.
func (s *client) advise(g *group) batch.Advice {
	switch g.stop.verdict {
	case tooLarge:
		return batch.Smaller
	case requestRefused:
		return batch.Search
	case hold:
		return batch.Hold
	case tooManyStreams:
		return batch.HoldStreams
	case limited:
		if s.others(g.st, g.stop.stream, time.Now()) {
			return batch.HoldStreams
		}
	case denied:
		if s.streams.onlyTenant(g.st.owner, time.Now()) {
			return batch.HoldStreams
		}
		return batch.Hold
	}
	return batch.Again
}

// refusal returns the refused records and the error of the first.
func (p *push) refusal() (batch.Set, error) {
	all := p.indexes(refused)
	if len(p.spared) == 0 && len(p.whys) == 1 {
		return batch.Of(all...), p.why
	}
	e := &refusals{error: p.why, spared: make([]bool, len(all)), whys: make([]error, len(all))}
	for k, i := range all {
		e.spared[k] = p.spared[int32(i)]
		e.whys[k] = p.whys[p.reasons[int32(i)]]
	}
	return batch.Of(all...), e
}

// refusals is the error for refused records with several reasons, or of which some must
// not become dead letters.
type refusals struct {
	error         // of the first
	spared []bool // of the refused records
	whys   []error
}

func (e *refusals) Unwrap() error { return e.error }

// NoLetter reports whether refused record k must not become a dead letter. It is called by
// package deliver.
func (e *refusals) NoLetter(k int) bool { return k < len(e.spared) && e.spared[k] }

// LetterCause returns the error of refused record k. It is called by package deliver.
func (e *refusals) LetterCause(k int) error {
	if k < len(e.whys) {
		return e.whys[k]
	}
	return e.error
}

// indexes returns the indexes of the records with an outcome.
func (p *push) indexes(of outcome) []int {
	var out []int
	for i, f := range p.outcomes {
		if f == of {
			out = append(out, i)
		}
	}
	return out
}

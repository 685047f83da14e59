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

// A client pushes entries and interprets the responses. All sessions of a Driver share one client,
// but only one session is open at a time. Goroutines are started only within Send, and end before
// Send returns.
type client struct {
	c        *Config
	streams  *registry
	observed *observations
	reports  *callback.Reporter
	http     *http.Client
	ownsHTTP bool // newClient created http, not the user
	headers  headers
	// secrets are removed from errors and events: passwords, tokens, and values of headers and of
	// the query.
	secrets       []string
	sparePush     chan *push // capacity 1: the push that the next Send reuses
	bufs          bufStack
	moves         moves
	recentStreams recentStreams

	requests, failed, splits, paced, wireBytes, bodyBytes atomic.Uint64 // counters of Stats

	// maxShared is the size limit of requests with several streams, in bytes. It adapts to the
	// server and is at most MaxRequestBytes.
	maxShared     atomic.Int64
	answeredHTTP  atomic.Bool  // a server has sent an HTTP response
	unreachable   atomic.Bool  // the last request had no response
	lastStamp     atomic.Int64 // latest time given by restamp, in Unix ns
	lastOldReport atomic.Int64 // time of the last report of errOld, in Unix ns
	// lastErr is the text of the last failed request, without credentials, for Stats.LastError.
	lastErr atomic.Pointer[string]
}

// newClient returns a client. It fails if a file named in c, a certificate or the token, cannot be
// read.
func newClient(c *Config, streams *registry, n *observations, r *callback.Reporter) (*client, error) {
	s := &client{c: c, streams: streams, observed: n, reports: r, sparePush: make(chan *push, 1)}
	s.maxShared.Store(int64(c.Limits.MaxRequestBytes))
	var err error
	if s.http, err = httpsend.Client("loki", &c.HTTP, c.Concurrency); err != nil {
		return nil, err
	}
	s.ownsHTTP = c.HTTP.Client == nil
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
	if err := s.preallocate(); err != nil {
		return nil, err
	}
	return s, nil
}

// preallocate allocates the memory for one batch of the usual size, so that sending rarely
// allocates, even for the first batches.
func (s *client) preallocate() (err error) {
	usual := min(s.c.BatchBytes, s.c.Limits.MaxRequestBytes)
	usual += usual/16 + 8<<10 // headers of streams, and the record that completes the batch
	if s.bufs.pool, err = newPool(usual, s.c.Limits.MaxRequestBytes, s.c.Concurrency); err != nil {
		return fmt.Errorf("loki: %w", err)
	}
	b := &requestBuf{response: make([]byte, 4<<10)}
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
	s.sparePush <- p
	return nil
}

// credentials returns the secrets that must not appear in errors and events, including the current
// bearer token. The caller must not modify the slice.
func (s *client) credentials() []string {
	if t := s.headers.token.Load(); t != nil {
		return append(slices.Clip(s.secrets), *t)
	}
	return s.secrets
}

// redactedMark replaces each secret in the text of an error.
const redactedMark = "[secret]"

// close waits until all events are reported, ends the exchanges that are kept for reuse, and closes
// idle connections. It does not close the connections of an http.Client that belongs to the user.
func (s *client) close() {
	s.reports.Wait(context.Background())
	s.bufs.endExchanges()
	if s.ownsHTTP {
		s.http.CloseIdleConnections()
	}
}

// A session is the use of a client by an outlet, from Open to Close.
type session struct {
	*client
	life deliver.Life
}

// Send pushes b and reports the outcome. The streams of b share requests as far as the limits of a
// request and the state of the streams permit; see [trust]. The records of each stream are sorted
// by time; records with the same time keep their order. Accepted records are not sent again, unless
// a response is ambiguous. If a record remains open, later records of its stream remain open and
// are not sent.
//
// If the session ends while a request has no response, the outcome of b is not reported, because
// Loki may have stored the entries.
//
// A refusal with an unknown text may come from a faulty server, or a record may be the cause. The
// records then remain open. The advice is [batch.Doubt] if the batch has no other problem.
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

// Close closes idle connections. Package deliver calls Close after Send has returned, so no request
// is in flight.
func (s *session) Close() { s.close() }

// An outcome is the result of a Send for one record.
type outcome uint8

const (
	open    outcome = iota // not settled: may be sent again
	stored                 // Loki has stored it
	refused                // Loki will never accept it
)

// A rec is one record in a Send. It is valid until Send returns.
type rec struct {
	data []byte // belongs to the batch
	// time is the time of the entry, in Unix ns.
	time  int64
	line  int32 // length of the line in bytes
	group int32 // index in push.groups; -1 if the record is refused before sending
	next  bool  // data directly follows the data of the previous record in memory
}

// A group contains the records of one stream in one Send. Different groups of a push have different
// streams.
type group struct {
	st        *stream
	level     int     // level of its first record
	order     []int32 // indexes in push.recs, sorted by time
	bytes     int     // size of the entries, in bytes
	place     place
	openCause answer // why records remain open; its kind is accepted if no record does
}

// A place determines whether the records of a group may share a request with other streams.
type place uint8

const (
	alone  place = iota // in requests without other streams
	shares              // may be in a request with other streams
	placed              // already added to a request with other streams
)

// A push is the state of one Send. It is reused by later calls of Send. The concurrent requests of
// a Send change only the elements of recs, outcomes, groups and order that belong to their own
// streams. mu guards the fields below it.
type push struct {
	form        form
	recs        []rec     // in the order of the batch
	outcomes    []outcome // by index of the record
	groups      []group
	order       []int32          // memory of group.order of all groups
	groupOf     map[uint32]int32 // from stream id to index in groups
	segs        []segment        // of all requests, concatenated
	requestEnds []int            // end of each request in segs

	mu           sync.Mutex
	firstRefusal error            // error of the first refused record
	errByReason  map[reason]error // error of the first record refused for each reason
	reasonOf     map[int32]reason // reason of each refused record, by index
	// noDeadLetter contains the refused records that do not become dead letters, because of TooOld
	// "drop".
	noDeadLetter map[int32]bool
	restamped    map[int32]bool        // records that got the current time
	movedKeys    map[int32][]recordKey // keys of a record in client.moves, removed when it is settled
}

// newPush returns an empty push.
func newPush() *push { return &push{groupOf: map[uint32]int32{}} }

// getPush returns an empty push. The caller must call release.
func (s *client) getPush() *push {
	select {
	case p := <-s.sparePush:
		return p
	default:
		return newPush()
	}
}

// release clears p and retains it for the next getPush. A large push is left to the garbage
// collector.
func (s *client) release(p *push) {
	if cap(p.recs) > 1<<16 {
		return
	}
	clear(p.recs)
	clear(p.groups)
	clear(p.segs)
	p.recs, p.outcomes, p.groups, p.order, p.firstRefusal = p.recs[:0], p.outcomes[:0], p.groups[:0], p.order[:0], nil
	clear(p.errByReason)
	clear(p.reasonOf)
	clear(p.noDeadLetter)
	clear(p.restamped)
	clear(p.movedKeys)
	select {
	case s.sparePush <- p:
	default:
	}
}

// send pushes b and returns its outcome. known is false if the session ended before every request had
// a response.
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

// formOfBatch returns the form of the entries of b. It fails if the codec of b is not one of this
// package.
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

// gather groups the records of b by stream and sorts each group by time. It refuses records that
// are beyond the limits of the Config, or gives them the current time (TooOld "now").
func (s *client) gather(p *push, b *batch.Batch) {
	now := time.Now().UnixNano()
	clear(p.groupOf)
	p.outcomes = slices.Grow(p.outcomes, b.Len())[:b.Len()]
	clear(p.outcomes)
	p.recs = slices.Grow(p.recs, b.Len())
	var st *stream // stream of the previous record
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
			if why == tooOld && s.c.Limits.TooOld == tooOldNow {
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
			p.groups[g].bytes++ // until order is divided: number of records
			p.recs = append(p.recs, r)
		}
	}
	// Divide p.order among the groups, and then store the indexes of the records in their order.
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

// sort sorts record indexes by time, and records with the same time by their order in the batch.
// Most groups are already sorted, so it checks first.
func (p *push) sort(order []int32) {
	for i := 1; i < len(order); i++ {
		if p.recs[order[i]].time < p.recs[order[i-1]].time {
			slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(p.recs[a].time, p.recs[b].time) })
			return
		}
	}
}

// inspect returns the length of the line of r in bytes, or the reason for refusing r. st may be
// nil. now is in Unix ns. For the reason tooOld the length is also returned, because the record may
// be sent with the current time.
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

// denials are the errors of records whose stream cannot exist in Loki, by reason.
var denials = map[reason]error{
	malformed:   errors.New("loki: cannot send a record: its stream is unknown; use the encoder of its destination"),
	badTenant:   errors.New("loki: cannot send a record: the tenant in its metadata is not a valid name (150 letters, digits and !-_.*'() at most, and neither . nor ..)"),
	streamsFull: errors.New("loki: cannot send a record: the tenant in its metadata is new, but Config.MaxStreams streams exist already"),
}

// stamp formats a time in Unix ns for error messages.
func stamp(t int64) string { return time.Unix(0, t).UTC().Format(time.RFC3339) }

// refuse marks record i of p as refused, with its reason and error, and counts the reason. It is
// safe for concurrent use.
func (s *client) refuse(p *push, i int32, why reason, err error) {
	s.observed.inc(why)
	p.outcomes[i] = refused
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.firstRefusal == nil {
		p.firstRefusal = err
	}
	if p.errByReason == nil {
		p.errByReason, p.reasonOf = map[reason]error{}, map[int32]reason{}
	}
	if p.errByReason[why] == nil {
		p.errByReason[why] = err
	}
	p.reasonOf[i] = why
	if s.c.Limits.TooOld == tooOldDrop && isAgeReason(why) {
		if p.noDeadLetter == nil {
			p.noDeadLetter = map[int32]bool{}
		}
		p.noDeadLetter[i] = true
	}
	s.forgetMove(p, i)
}

// store marks the records with the indexes in order as stored. It is safe for concurrent use with
// different records.
func (s *client) store(p *push, order []int32) {
	for _, i := range order {
		p.outcomes[i] = stored
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.movedKeys) > 0 {
		for _, i := range order {
			s.forgetMove(p, i)
		}
	}
}

// outcome returns the outcome of all records of p. known is false if the session ended before every
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
		switch g.openCause.kind {
		case accepted:
			continue
		case unknownText: // the advice remains Doubt, which has the lowest precedence
			if o.Why == nil {
				o.Why = g.openCause.err
			}
			continue
		}
		if g.openCause.kind == unanswered && ctx.Err() != nil {
			return o, false
		}
		a := s.advise(g)
		rank := slices.Index(ranks[:], a)
		if rank < gravest {
			gravest, o.Advice, o.Why, o.After = rank, a, g.openCause.err, 0
		}
		if rank == gravest {
			o.After = max(o.After, g.openCause.after)
			if g.openCause.kind == unanswered { // a possible duplicate is reported in preference to a refusal
				o.Why = g.openCause.err
			}
		}
	}
	return o, true
}

// ranks lists advice by precedence. A batch has one advice for all its open records: the first one
// in this list that any of its streams needs. When the open records are sent again, streams that
// need other advice report it again. Therefore records are split or held only if the batch has no
// problem that precedes it in the list.
var ranks = [...]batch.Advice{batch.Again, batch.Smaller, batch.Search, batch.Hold, batch.HoldStreams}

// advise returns the advice for the open records of g.
func (s *client) advise(g *group) batch.Advice {
	switch g.openCause.kind {
	case tooLarge:
		return batch.Smaller
	case requestRefused:
		return batch.Search
	case hold:
		return batch.Hold
	case tooManyStreams:
		return batch.HoldStreams
	case limited:
		if s.othersHaveRoom(g.st, g.openCause.stream, time.Now()) {
			return batch.HoldStreams
		}
	case denied:
		if s.streams.othersAcceptable(g.st.owner, time.Now()) {
			return batch.HoldStreams
		}
		return batch.Hold
	}
	return batch.Again
}

// refusal returns the refused records and their error. The error is a *refusals if the records have
// different reasons, or if some of them become no dead letters.
func (p *push) refusal() (batch.Set, error) {
	all := p.indexes(refused)
	if len(p.noDeadLetter) == 0 && len(p.errByReason) == 1 {
		return batch.Of(all...), p.firstRefusal
	}
	e := &refusals{error: p.firstRefusal, noDeadLetter: make([]bool, len(all)), errs: make([]error, len(all))}
	for k, i := range all {
		e.noDeadLetter[k] = p.noDeadLetter[int32(i)]
		e.errs[k] = p.errByReason[p.reasonOf[int32(i)]]
	}
	return batch.Of(all...), e
}

// refusals is the error of refused records that have several reasons, or of which some must not
// become dead letters. Both slices are indexed by the position of a record among the refused
// records.
type refusals struct {
	error        // of the first refused record
	noDeadLetter []bool
	errs         []error
}

// Unwrap returns the error of the first refused record.
func (e *refusals) Unwrap() error { return e.error }

// NoDeadLetter reports whether refused record k must not become a dead letter. It is called by
// package deliver.
func (e *refusals) NoDeadLetter(k int) bool { return k < len(e.noDeadLetter) && e.noDeadLetter[k] }

// DeadLetterCause returns the error of refused record k, for its dead letter. It is called by package
// deliver.
func (e *refusals) DeadLetterCause(k int) error {
	if k < len(e.errs) {
		return e.errs[k]
	}
	return e.error
}

// indexes returns the indexes of the records with the given outcome, in increasing order.
func (p *push) indexes(of outcome) []int {
	var out []int
	for i, f := range p.outcomes {
		if f == of {
			out = append(out, i)
		}
	}
	return out
}

package loki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/values"
)

// A session is a [deliver.Session]. It uses the client from Open to Close.
type session struct {
	*client
	life deliver.Life
}

// Send pushes b and reports the outcome. The streams of b share requests as far as the size limits
// and [trust] permit. The records of each stream are sorted by time; records with the same time
// keep their order. Accepted records are not sent again, unless a response is ambiguous. If a
// record must be sent again, later records of its stream are not sent before it.
//
// If the session ends while a request has no response, the outcome of b is not reported, because
// Loki may have stored the entries.
//
// A refusal with an unknown text may come from a faulty server, or a record may be the cause. The
// records are then kept. The advice is [batch.Doubt] if the batch has no other problem.
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

// Close closes idle connections. Package deliver calls it after Send has returned, so no request is
// in flight.
func (s *session) Close() { s.close() }

// send pushes b and returns its outcome. If the session ended before every request had a response,
// known is false.
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

// gather groups the records of b by stream and sorts each group by time. Records beyond the limits
// of the Config are refused. With TooOld "now", a record that is too old gets the current time
// instead.
func (s *client) gather(p *push, b *batch.Batch) {
	now := time.Now().UnixNano()
	clear(p.groupOf)
	p.outcomes = slices.Grow(p.outcomes, b.Len())[:b.Len()]
	clear(p.outcomes)
	p.recs = slices.Grow(p.recs, b.Len())
	// The records are checked in a separate loop. Most of them are in the cache of another processor,
	// and a short loop reads several of them at the same time.
	for i := range b.Runs {
		run := &b.Runs[i]
		for k := range run.Len() {
			r := rec{data: run.Record(k), time: run.Slot(k).Time, line: -1, group: -1, next: k > 0}
			if line, ok := p.form.check(r.data, s.c.Limits.MaxLine); ok {
				r.line = int32(line)
			}
			p.recs = append(p.recs, r)
		}
	}
	var st *stream // stream of the previous record
	last, g, n := uint32(0), int32(-1), int32(-1)
	for i := range b.Runs {
		run := &b.Runs[i]
		for k := range run.Len() {
			slot := run.Slot(k)
			n++
			r := &p.recs[n]
			// Consecutive records usually have the same stream, so most lookups are saved.
			if st == nil || slot.Stream != last {
				st, last, g = s.streams.get(slot.Stream), slot.Stream, -1
			}
			why, err := s.inspect(r, st, now)
			if why == tooOld && s.c.Limits.TooOld == tooOldNow {
				s.restamp(p, n, r, st)
			} else if err != nil {
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
			r.group = g
			p.groups[g].bytes++ // number of records, until order is divided among the groups
		}
	}
	// Each group gets a part of p.order, in which the indexes of its records are stored.
	p.order = slices.Grow(p.order, len(p.recs))[:len(p.recs)]
	at := 0
	for i := range p.groups {
		g := &p.groups[i]
		n := g.bytes
		// The capacity is the number of records of the group, so the appends below stay within its
		// part.
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
		// Loki refuses an entry whose time is too far before that of the newest entry of its
		// stream.
		p.sort(p.groups[i].order)
	}
}

// inspect returns the reason for refusing r and an error, or no error. st may be nil. now is in Unix
// ns.
func (s *client) inspect(r *rec, st *stream, now int64) (why reason, err error) {
	c := s.c
	switch {
	case r.line < 0:
		return malformed, malformedError(r.data)
	case st == nil:
		return malformed, denials[malformed]
	case st.broken:
		return st.denial, denials[st.denial]
	case int(r.line) > c.Limits.MaxLine:
		return lineTooLong, fmt.Errorf("loki: cannot send a line of %d bytes: max_line is %d", r.line, c.Limits.MaxLine)
	case c.Limits.MaxAge >= 0 && r.time < now-int64(c.Limits.MaxAge):
		return tooOld, fmt.Errorf("loki: cannot send a record of %s: it is older than max_age (%v)", stamp(r.time), c.Limits.MaxAge)
	case c.Limits.MaxFuture >= 0 && r.time > now && r.time-now > int64(c.Limits.MaxFuture):
		return tooNew, fmt.Errorf("loki: cannot send a record of %s: it is further in the future than max_future (%v)", stamp(r.time), c.Limits.MaxFuture)
	}
	return 0, nil
}

// denials are the errors of records whose stream Loki cannot have, by reason.
var denials = map[reason]error{
	malformed:   errors.New("loki: cannot send a record: its stream is unknown; use the encoder of its destination"),
	badTenant:   errors.New("loki: cannot send a record: the tenant in its metadata is not a valid name (150 letters, digits and !-_.*'() at most, and neither . nor ..)"),
	streamsFull: errors.New("loki: cannot send a record: the tenant in its metadata is new, but Limits.MaxStreams streams exist already"),
}

// stamp formats a time in Unix ns for error messages.
func stamp(t int64) string { return time.Unix(0, t).UTC().Format(time.RFC3339) }

// outcome returns the outcome of all records of p. If the session ended before every request had a
// response, known is false.
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
		case unknownText: // Doubt is the advice with the lowest precedence
			if o.Why == nil {
				o.Why = g.openCause.err
			}
			continue
		}
		// The session has ended without a response, so it is unknown what Loki has stored.
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
			// If one request has no response, its error is reported instead of a refusal, because
			// records may be duplicated.
			if g.openCause.kind == unanswered {
				o.Why = g.openCause.err
			}
		}
	}
	return o, true
}

// ranks lists advice by precedence. A batch has one advice for all records that must be sent again:
// the first in this list that any of its streams needs. Streams that need other advice report it
// when they are sent again. Therefore records are split or kept back only if no stream needs an
// earlier advice in the list.
var ranks = [...]batch.Advice{batch.Again, batch.Smaller, batch.Search, batch.ServerError, batch.Hold, batch.HoldStreams}

// advise returns the advice for the records of g that must be sent again.
func (s *client) advise(g *group) batch.Advice {
	switch g.openCause.kind {
	case tooLarge:
		return batch.Smaller
	case requestRefused:
		return batch.Search
	case serverError:
		return batch.ServerError
	case hold:
		return batch.Hold
	case tooManyStreams:
		return batch.HoldStreams
	case limited:
		// Only this stream or tenant is limited, so the records of others are sent.
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

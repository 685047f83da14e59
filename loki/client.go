package loki

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/httpsend"
)

// A client pushes entries and interprets the responses. All sessions of a Driver share one client,
// but only one session is open at a time. Goroutines run only during Send.
type client struct {
	c        *Config
	streams  *registry
	observed *observations
	reports  *callback.Reporter
	http     *http.Client
	ownsHTTP bool // http was created by newClient, not by the user
	headers  headers
	// secrets are removed from errors and events. They are passwords, tokens, values of headers,
	// and the query part of the URL.
	secrets       []string
	sparePush     chan *push // capacity 1: an unused push for the next Send
	bufs          bufStack
	moves         moves
	recentStreams recentStreams

	requests, failed, splits, paced, wireBytes, bodyBytes atomic.Uint64 // counters of Stats

	// maxShared is the size limit, in bytes, of requests with several streams. It adapts to the
	// server and is at most MaxRequestBytes.
	maxShared     atomic.Int64
	answeredHTTP  atomic.Bool  // a server has sent an HTTP response
	unreachable   atomic.Bool  // the last request had no response
	lastStamp     atomic.Int64 // latest time given by restamp, in Unix ns
	lastOldReport atomic.Int64 // time of the last report of errOld, in Unix ns
	// lastErr is the error text of the last failed request, without secrets, for Stats.LastError.
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
	// The query part of the URL is also a secret, because a proxy may require a key in it.
	s.secrets = []string{c.HTTP.Password, c.HTTP.BearerToken, httpsend.Basic(c.HTTP.Username, c.HTTP.Password), c.endpoint.RawQuery}
	for name, value := range c.HTTP.Headers {
		// The value consists of a scheme and a token. The token may also appear without the scheme.
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
		b.zip.Write(b.own[0][:1]) // makes the compressor allocate its tables
		b.out = nil
	}
	s.bufs.put(b)
	// The slices of a push have one element for each record, so they are longest for a batch of
	// short records.
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

// close waits until all events are reported, releases the cached requests, and closes the idle
// connections. It does not close the connections of a user-supplied http.Client.
func (s *client) close() {
	s.reports.Wait(context.Background())
	s.bufs.endExchanges()
	if s.ownsHTTP {
		s.http.CloseIdleConnections()
	}
}

// getPush returns an empty push. The caller must call release.
func (s *client) getPush() *push {
	select {
	case p := <-s.sparePush:
		return p
	default:
		return newPush()
	}
}

// release clears p and keeps it for the next getPush. A large push is left to the garbage
// collector, so that a batch of many short records does not keep memory forever.
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

// refuse marks record i of p as rejected with a reason and an error, and counts the reason. It is
// safe for concurrent use.
func (s *client) refuse(p *push, i int32, why reason, err error) {
	s.observed.inc(why)
	p.outcomes[i] = refused
	p.mu.Lock()
	defer p.mu.Unlock()
	// Package deliver reports only one error for a batch, but each dead letter gets the error for
	// its own reason.
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

// store marks the records with the given indexes as stored. Concurrent calls must have different
// indexes.
func (s *client) store(p *push, indexes []int32) {
	for _, i := range indexes {
		p.outcomes[i] = stored
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.movedKeys) > 0 {
		for _, i := range indexes {
			s.forgetMove(p, i)
		}
	}
}

// forgetMove removes the keys of record i from the field moves, after the outcome of the record is
// known. The caller holds p.mu.
func (s *client) forgetMove(p *push, i int32) {
	for _, key := range p.movedKeys[i] {
		s.moves.remove(key)
	}
}

// Package listentest contains helpers for the tests of all listeners.
package listentest

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
)

// A Sink is a listen.Sink that stores records. A test can make it block or fail.
type Sink struct {
	mu         sync.Mutex // guards the fields below
	records    []listen.Record
	committed  int           // number of committed records
	commits    int           // number of successful commits
	err        error         // if not nil, Put and Commit return it
	gate       chan struct{} // Put and Commit block until it is closed; nil if they do not block
	commitGate chan struct{} // Commit blocks until it is closed; nil if Commit does not block
	changed    chan struct{} // closed by the next change; nil if no call of Await waits
}

// Put stores a copy of r, unless a test has made the Sink block or fail.
func (s *Sink) Put(ctx context.Context, r *listen.Record) error {
	if err := s.wait(ctx, &s.gate); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	c := *r
	c.Body = bytes.Clone(r.Body)
	c.Labels, c.Metadata = slices.Clone(r.Labels), slices.Clone(r.Metadata)
	s.records = append(s.records, c)
	s.change()
	return nil
}

// Commit marks all records that were stored before the call as committed.
func (s *Sink) Commit(ctx context.Context) error {
	s.mu.Lock()
	put := len(s.records)
	s.mu.Unlock()
	if err := s.wait(ctx, &s.gate); err != nil {
		return err
	}
	if err := s.wait(ctx, &s.commitGate); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.committed = max(s.committed, put)
	s.commits++
	s.change()
	return nil
}

// change wakes all calls of Await. The caller holds mu.
func (s *Sink) change() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// wait waits until the channel *at is closed. If *at is nil, it returns immediately.
func (s *Sink) wait(ctx context.Context, at *chan struct{}) error {
	s.mu.Lock()
	gate := *at
	s.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Block makes Put and Commit block until the test calls the function open.
func (s *Sink) Block() (open func()) { return s.block(&s.gate) }

// BlockCommits makes Commit block until the test calls the function open.
func (s *Sink) BlockCommits() (open func()) { return s.block(&s.commitGate) }

// block stores a new channel in *at, for which the methods wait. The function open closes and
// removes the channel.
func (s *Sink) block(at *chan struct{}) (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	*at = gate
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		*at = nil
		close(gate)
	}
}

// Commits returns the number of successful commits.
func (s *Sink) Commits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

// Fail makes all later calls of Put and Commit return err.
func (s *Sink) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Records returns the stored records, and how many of them, counted from the first, are committed.
func (s *Sink) Records() (records []listen.Record, committed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.records), s.committed
}

// Bodies returns the bodies of the stored records.
func (s *Sink) Bodies() (bodies []string) {
	all, _ := s.Records()
	for _, r := range all {
		bodies = append(bodies, string(r.Body))
	}
	return bodies
}

// Await waits until n records are committed. It returns all stored records.
func (s *Sink) Await(t testing.TB, n int) []listen.Record {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		s.mu.Lock()
		if s.committed >= n {
			defer s.mu.Unlock()
			return slices.Clone(s.records)
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed, got := s.changed, s.committed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("after a minute, %d records are committed, want %d", got, n)
		}
	}
}

// Refusals collects the refusals of a listener.
type Refusals struct {
	mu  sync.Mutex
	all []listen.Refusal
}

// Add adds a refusal. It can be used as [listen.Config.Refused].
func (r *Refusals) Add(one listen.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

// All returns the texts of the refusals.
func (r *Refusals) All() (texts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		texts = append(texts, one.Err.Error())
	}
	return texts
}

// Pipes is a net.Listener whose connections are in memory, so that it can be used in a synctest
// bubble.
type Pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipes returns an open listener. Dial connects to it.
func NewPipes() *Pipes {
	return &Pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial opens a connection and returns its client end. If the listener is closed, Dial returns nil.
func (p *Pipes) Dial() net.Conn {
	client, server := net.Pipe()
	select {
	case p.accept <- server:
		return client
	case <-p.closed:
		return nil
	}
}

// Accept returns the server end of the next connection.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends blocked calls of Accept and Dial.
func (p *Pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr returns an invented address, because connections in memory have none.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

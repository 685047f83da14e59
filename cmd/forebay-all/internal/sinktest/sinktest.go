// Package sinktest has a sink for tests of inputs.
package sinktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/input"
)

// A Sink is a commits.Sink that keeps what it is given.
type Sink struct {
	mu     sync.Mutex
	recs   []Record
	said   []string
	safe   chan struct{} // closed while commits succeed
	room   chan struct{} // closed while there is room
	closed bool
	commit int
}

// A Record is what was put, as text.
type Record struct {
	Body, Attrs, Level string
	Time               time.Time
}

// New returns a Sink that has room, and whose commits succeed.
func New() *Sink {
	s := &Sink{safe: make(chan struct{}), room: make(chan struct{})}
	close(s.safe)
	close(s.room)
	return s
}

// Put keeps r.
func (s *Sink) Put(r *input.Record) error {
	s.mu.Lock()
	room := s.room
	s.mu.Unlock()
	<-room
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return input.ErrClosed
	}
	k := Record{Body: string(r.Body), Time: r.Time}
	for _, a := range r.Attrs {
		k.Attrs += a.String() + " "
	}
	if r.Level != nil {
		k.Level = r.Level.String()
	}
	s.recs = append(s.recs, k)
	return nil
}

// Commit waits until commits succeed.
func (s *Sink) Commit(ctx context.Context) error {
	s.mu.Lock()
	safe := s.safe
	s.mu.Unlock()
	select {
	case <-safe:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit++
	return nil
}

// Say keeps the text.
func (s *Sink) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// Hold has commits wait, until Release.
func (s *Sink) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.safe = make(chan struct{})
}

// Release ends Hold.
func (s *Sink) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.safe)
}

// Fill has Put wait, until Drain.
func (s *Sink) Fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = make(chan struct{})
}

// Drain ends Fill.
func (s *Sink) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.room)
}

// Close has Put fail.
func (s *Sink) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Records returns what was put.
func (s *Sink) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.recs)
}

// Commits returns how many commits have succeeded.
func (s *Sink) Commits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commit
}

// Said returns all that was said.
func (s *Sink) Said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.said, "\n")
}

// Bodies returns the bodies of what was put.
func (s *Sink) Bodies() (all []string) {
	for _, r := range s.Records() {
		all = append(all, r.Body)
	}
	return all
}

// Await waits until ok, for things that servers do in their time.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

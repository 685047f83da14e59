// Package sinktest provides a sink for tests of inputs.
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

// A Sink is a commits.Sink that keeps all records and messages in memory. Tests can make its Put
// and Commit methods wait.
type Sink struct {
	mu     sync.Mutex
	recs   []Record
	said   []string
	gate   chan struct{} // Commit waits until this channel is closed
	room   chan struct{} // Put waits until this channel is closed
	closed bool
	commit int
}

// A Record is an input.Record converted to text.
type Record struct {
	Body, Attrs, Level string
	Time               time.Time
}

// New returns a Sink that accepts records and whose commits succeed.
func New() *Sink {
	s := &Sink{gate: make(chan struct{}), room: make(chan struct{})}
	close(s.gate)
	close(s.room)
	return s
}

// Put appends r to the records.
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

// Commit waits while commits are held, and counts the commit.
func (s *Sink) Commit(ctx context.Context) error {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	select {
	case <-gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit++
	return nil
}

// Say appends the text to the messages.
func (s *Sink) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// Hold makes commits wait until Release.
func (s *Sink) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

// Release ends the effect of Hold.
func (s *Sink) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
}

// Fill makes Put wait until Drain.
func (s *Sink) Fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = make(chan struct{})
}

// Drain ends the effect of Fill.
func (s *Sink) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.room)
}

// Close makes Put return input.ErrClosed.
func (s *Sink) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Records returns a copy of all records.
func (s *Sink) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.recs)
}

// Commits returns the number of successful commits.
func (s *Sink) Commits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commit
}

// Said returns all messages, one per line.
func (s *Sink) Said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.said, "\n")
}

// Bodies returns the bodies of all records.
func (s *Sink) Bodies() (all []string) {
	for _, r := range s.Records() {
		all = append(all, r.Body)
	}
	return all
}

// Await polls until ok returns true, and fails the test after a minute.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

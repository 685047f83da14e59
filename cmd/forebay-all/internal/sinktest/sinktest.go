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

// A Sink is a commits.Sink that stores all records and messages. A test can block Put and Commit.
type Sink struct {
	mu       sync.Mutex
	recs     []Record
	messages []string
	gate     chan struct{} // Commit waits until it is closed
	room     chan struct{} // Put waits until it is closed
	closed   bool
	commit   int
}

// A Record is an input.Record whose fields are converted to text.
type Record struct {
	Body, Attrs, Level string
	Time               time.Time
}

// New returns a Sink whose methods do not block.
func New() *Sink {
	s := &Sink{gate: make(chan struct{}), room: make(chan struct{})}
	close(s.gate)
	close(s.room)
	return s
}

// Put stores r.
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

// Commit waits until commits are not blocked, and counts the call.
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

// Say stores a message.
func (s *Sink) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, fmt.Sprintf(format, args...))
}

// Hold blocks Commit until Release is called.
func (s *Sink) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

// Release ends the effect of Hold and wakes blocked calls of Commit.
func (s *Sink) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
}

// Fill blocks Put until Drain is called.
func (s *Sink) Fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = make(chan struct{})
}

// Drain ends the effect of Fill and wakes blocked calls of Put.
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

// Messages returns all messages, one per line.
func (s *Sink) Messages() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.messages, "\n")
}

// Bodies returns the bodies of all records.
func (s *Sink) Bodies() (all []string) {
	for _, r := range s.Records() {
		all = append(all, r.Body)
	}
	return all
}

// Await waits until the function ok returns true. After a minute it fails the test.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

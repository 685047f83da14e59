package slablog

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// A spillSink is a consumer that hangs in each Accept until memory is short, and then accepts.
type spillSink struct {
	bare
	log    *Log
	report batch.Report

	mu    sync.Mutex
	taken batch.Account
	wait  bool // if set, Accept hangs although memory is short
}

func (s *spillSink) Wants() wants { return wants{Spills: true} }

func (s *spillSink) attach(l *Log) { s.log = l }

func (s *spillSink) Accept(ctx context.Context, l *Lease) error {
	for {
		s.mu.Lock()
		if s.log.Full() && !s.wait {
			if n := l.Batch().Len(); l.Settle(n) {
				s.taken.Accepted += uint64(n)
				s.taken.Pending.Spill += uint64(n)
			}
			s.mu.Unlock()
			l.Release()
			return nil
		}
		s.mu.Unlock()
		select {
		case <-s.log.Wake():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *spillSink) Account(read func(batch.Account)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read(s.taken)
}

func (s *spillSink) Shutdown(context.Context) (batch.Report, error) { return s.report, nil }

// Writes wait until the consumer has moved slabs to disk, but not for the destination. The last
// slabs stay in memory while there is free space.
func TestSpill(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &spillSink{}
		w, err := newPump(s, &slab.Options{SlabBytes: 1024, SlabCount: 3, WhenFull: slab.Spill()})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					if err := w.WriteRecord(make([]byte, 100), batch.Meta{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d > 0 {
			t.Errorf("writes waited for %s", d)
		}
		a := w.Account()
		if err := a.Check(); err != nil || a.Accepted != 800 || a.Pending.Spill == 0 || a.Dropped.Total() != 0 {
			t.Errorf("%v: %s", err, a)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, _ := w.Shutdown(ctx)
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	})
}

// If the consumer moves nothing to disk, a write waits until its time limit is over. Later writes
// do not wait.
func TestSpillWaitsAtMostItsTimeLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &spillSink{wait: true}
		w, err := newPump(s, &slab.Options{SlabBytes: 1024, SlabCount: 2, WhenFull: slab.Spill(), OnError: func(batch.Event) {}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		lost := 0
		for range 100 {
			if err := w.WriteRecord(make([]byte, 100), batch.Meta{}); errors.Is(err, slab.ErrDropped) {
				lost++
			}
		}
		if d := time.Since(began); d != layout.MaxWait(slab.Spill()) || lost == 0 {
			t.Errorf("%d lost after %s", lost, d)
		}
		if !s.log.Full() {
			t.Error("not full although writes are dropped")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, _ := w.Shutdown(ctx)
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	})
}

// New returns an error for the policy Spill if the consumer cannot move records to disk.
func TestSpillNeedsSpiller(t *testing.T) {
	for _, o := range []*slab.Options{{WhenFull: slab.Spill()}, {ImportantWhenFull: slab.Spill()}} {
		if _, _, err := New(o, Consumer{}); err == nil || !strings.Contains(err.Error(), "has no disk") {
			t.Error(err)
		}
	}
}

// A helpSink is a consumer that hangs in each Accept. It records when it learns that memory is
// short, at the start of Accept or when the log wakes it.
type helpSink struct {
	bare
	log   *Log
	began time.Time
	free  chan struct{}

	mu sync.Mutex
	at []time.Duration
}

func (s *helpSink) attach(l *Log) { s.log = l }

func (s *helpSink) Accept(ctx context.Context, l *Lease) error {
	for {
		if drops, waits := s.log.Shortage(); drops || waits {
			s.mu.Lock()
			s.at = append(s.at, time.Since(s.began))
			s.mu.Unlock()
		}
		select {
		case <-s.free:
			return s.bare.Accept(ctx, l)
		case <-s.log.Wake():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *helpSink) asked() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// The log wakes the consumer before a record is dropped: when few slabs are free and writes do not
// wait, or when a write has waited for half of its time limit. It does not wake the consumer after
// memory has become free.
func TestConsumerIsWokenBeforeADrop(t *testing.T) {
	for _, tt := range []struct {
		o     slab.Options
		asked time.Duration
	}{
		{slab.Options{WhenFull: slab.DropNewest()}, 0},
		{slab.Options{WhenFull: slab.DropOldest()}, 0},
		{slab.Options{WhenFull: slab.BlockFor(0)}, 0},
		{slab.Options{WhenFull: slab.DropNewest(), Reserve: 3}, 0},
		{slab.Options{WhenFull: slab.Block(), ImportantWhenFull: slab.DropNewest()}, 0},
		{slab.Options{}, stuckAfter},
		{slab.Options{WhenFull: slab.BlockFor(time.Second)}, time.Second / 2},
		{slab.Options{WhenFull: slab.Block()}, stuckAfter},
	} {
		bubble.Test(t, func(t *testing.T) {
			s := &helpSink{began: time.Now(), free: make(chan struct{})}
			o := tt.o
			o.SlabBytes, o.SlabCount, o.OnError = 1024, 8, func(batch.Event) {}
			w, err := newPump(s, &o)
			if err != nil {
				t.Fatal(err)
			}
			if drops, waits := s.log.Shortage(); drops || waits {
				t.Error("Shortage reports a need although all slabs are free")
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 100 {
					_ = w.WriteRecord(make([]byte, 100), batch.Meta{})
					drops, waits := s.log.Shortage()
					if a := w.Account(); a.Dropped.Total() > 0 && !drops && !waits {
						t.Error("a record was dropped before the consumer was woken")
						return
					}
				}
			}()
			time.Sleep(tt.asked)
			synctest.Wait()
			blocks := tt.o.WhenFull == slab.Block() && tt.o.ImportantWhenFull == (slab.WhenFull{})
			if drops, waits := s.log.Shortage(); len(s.asked()) == 0 || s.asked()[0] != tt.asked || drops == blocks || waits != blocks {
				t.Errorf("%+v: asked at %v, want %s; drops %v, waits %v", tt.o.WhenFull, s.asked(), tt.asked, drops, waits)
			}
			close(s.free)
			<-done
			err = w.Flush(t.Context())
			if drops, waits := s.log.Shortage(); err != nil || drops || waits {
				t.Errorf("%+v: %v, Shortage still reports a need: %v, %v", tt.o.WhenFull, err, drops, waits)
			}
			w.Close()
		})
	}
}

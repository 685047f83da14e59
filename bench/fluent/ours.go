package fluent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/slab"
)

// Ours returns a way of making a fluent.Logger. With sync each Post waits until its
// record is written, or acknowledged.
func Ours(acks, sync bool) func(addr string, workers int) (*Poster, error) {
	return func(addr string, _ int) (*Poster, error) {
		l, err := fluent.NewLogger(fluent.Config{Servers: []string{addr}, NoAck: !acks, Sync: sync}, forebay.WhenFull("block"), forebay.OnError(func(batch.Event) {}))
		if err != nil {
			return nil, err
		}
		// Rivals connect when they are made. A Logger does with its first record, and without
		// acknowledgements waits for a moment behind it.
		const first = 2
		for range first {
			if err := errors.Join(l.Post(Tag, event), l.Flush(context.Background())); err != nil {
				return nil, errors.Join(err, drain(l))
			}
		}
		return &Poster{
			First: first,
			Post: func(_ int, v any) {
				if err := l.Post(Tag, v); err != nil {
					panic(err)
				}
			},
			Drain: func() error { return drain(l) },
		}, nil
	}
}

// drain closes l and requires that nothing was left behind.
func drain(l *fluent.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rep, err := l.Close(ctx)
	if err == nil && rep.Undelivered() > 0 {
		err = fmt.Errorf("%s", rep.Account)
	}
	return err
}

// StallPlan is the memory for the stall row, as slab.Plan has it: the receiver
// takes a slab in a few milliseconds, up to four frames are not acknowledged, and
// the stall is half as long again as the one to be had.
var StallPlan = func() slab.Sizing {
	p, err := slab.Plan(slab.Workload{
		Rate: stallRate, RecordBytes: stallRecord + 32, Latency: 5 * time.Millisecond, Spike: stallFor + stallFor/2, Window: 4,
	})
	if err != nil {
		panic(err)
	}
	return p
}()

// OursPlanned returns a fluent.Logger with the memory of StallPlan. What finds no
// room is dropped.
func OursPlanned(addr string, _ int) (*Poster, error) {
	bytes := StallPlan.SlabBytes * StallPlan.SlabCount
	l, err := fluent.NewLogger(fluent.Config{
		Servers:    []string{addr},
		FrameBytes: 256 << 10,
	}, forebay.OnError(func(batch.Event) {}), forebay.Delivery(func(o *deliver.OutputOptions) { o.BufferBytes = bytes; o.Slab.SlabBytes = StallPlan.SlabBytes }))
	if err != nil {
		return nil, err
	}
	return &Poster{
		Post: func(_ int, v any) { _ = l.Post(Tag, v) }, // what is lost is missing at the receiver
		Drain: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := l.Close(ctx)
			return err
		},
		Held: func() int {
			s := l.Stats().Slab
			return s.SlabBytes * s.SlabCount // larger records included
		},
	}, nil
}

// Null is a poster that does nothing.
func Null(string, int) (*Poster, error) {
	return &Poster{Post: func(int, any) {}, Drain: func() error { return nil }, Local: true}, nil
}

// Copy is a poster that copies the line of a record into memory as large as that
// of StallPlan, and no more.
func Copy(string, int) (*Poster, error) {
	ring := make([]byte, StallPlan.SlabBytes*StallPlan.SlabCount)
	touch(ring)
	at := 0
	return &Poster{Drain: func() error { return nil }, Local: true, Post: func(_ int, v any) {
		line := v.(map[string]any)[stallLine].(string)
		if at+len(line) > len(ring) {
			at = 0
		}
		at += copy(ring[at:], line)
	}}, nil
}

// CopyAndSend is Copy into buffers of 256 KiB that another goroutine writes to the
// receiver: the least that anybody does who sends.
func CopyAndSend(addr string, _ int) (*Poster, error) {
	const size = 256 << 10
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	n := StallPlan.SlabBytes * StallPlan.SlabCount / size
	f := &floor{c: c, full: make(chan []byte, n), free: make(chan []byte, n), done: make(chan error, 1)}
	for range n {
		b := make([]byte, size)
		touch(b)
		f.free <- b[:0]
	}
	f.cur = <-f.free
	go f.run()
	return &Poster{Drain: f.drain, Post: func(_ int, v any) {
		line := v.(map[string]any)[stallLine].(string)
		f.mu.Lock()
		defer f.mu.Unlock()
		if cap(f.cur)-len(f.cur) < len(line)+8 {
			f.full <- f.cur
			f.cur = <-f.free
		}
		f.cur = msgpack.AppendStr(f.cur, line) // the receiver counts values
	}}, nil
}

// touch writes to every page, so that the kernel gives it now.
func touch(b []byte) {
	for i := 0; i < len(b); i += 4 << 10 {
		b[i] = 1
	}
}

// Floor is the least that a client written for these records alone would do:
// encode by hand under a lock into one of two buffers, and write frames of 64 KiB
// from another goroutine.
func Floor(addr string, _ int) (*Poster, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	f := &floor{c: c, full: make(chan []byte, 1), free: make(chan []byte, 2), done: make(chan error, 1)}
	f.free <- make([]byte, 0, 80<<10)
	f.free <- make([]byte, 0, 80<<10)
	f.cur = <-f.free
	go f.run()
	return &Poster{Post: func(_ int, v any) { f.post(v) }, Drain: f.drain}, nil
}

type floor struct {
	c    io.WriteCloser
	mu   sync.Mutex
	cur  []byte
	full chan []byte
	free chan []byte
	done chan error
}

func (f *floor) post(v any) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	b := msgpack.AppendEventTime(msgpack.AppendArrayHeader(f.cur, 2), uint32(now.Unix()), uint32(now.Nanosecond()))
	switch v := v.(type) {
	case map[string]any:
		b = msgpack.AppendMapHeader(b, len(v))
		for k, e := range v {
			b = msgpack.AppendStr(b, k)
			switch e := e.(type) {
			case string:
				b = msgpack.AppendStr(b, e)
			case int:
				b = msgpack.AppendInt(b, int64(e))
			}
		}
	case Event:
		b = appendEvent(b, &v)
	}
	if f.cur = b; len(b) >= 64<<10 {
		f.full <- b
		f.cur = <-f.free
	}
}

func appendEvent(b []byte, e *Event) []byte {
	b = msgpack.AppendMapHeader(b, 26)
	for i, s := range [...]*string{&e.A, &e.B, &e.C, &e.D, &e.E, &e.F, &e.G, &e.H, &e.I, &e.J, &e.K, &e.L, &e.M,
		&e.N, &e.O, &e.P, &e.Q, &e.R, &e.S, &e.T, &e.U, &e.V, &e.W, &e.X, &e.Y, &e.Z} {
		b = append(b, 0xa1, 'a'+byte(i))
		b = msgpack.AppendStr(b, *s)
	}
	return b
}

func (f *floor) run() {
	var err error
	var head []byte
	for b := range f.full {
		head = msgpack.AppendStr(msgpack.AppendArrayHeader(head[:0], 2), Tag)
		head = msgpack.AppendBinHeader(head, len(b))
		v := net.Buffers{head, b}
		if _, e := v.WriteTo(f.c.(io.Writer)); e != nil {
			err = e
		}
		f.free <- b[:0]
	}
	f.done <- err
}

func (f *floor) drain() error {
	f.mu.Lock()
	if len(f.cur) > 0 {
		f.full <- f.cur
	}
	close(f.full)
	f.mu.Unlock()
	err := <-f.done
	f.c.Close()
	return err
}

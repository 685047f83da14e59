// Package fluent contains the contenders of the rows about the Forward protocol: a receiver that
// counts events, and clients that send to it.
//
// fluent-logger-golang is not among them, because it cannot be linked together with
// IBM/fluent-forward-go, which is faster: both register extension 0 of MessagePack. Entry 85 of
// LEDGER.md contains its figures.
package fluent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/IBM/fluent-forward-go/fluent/client"
	"github.com/IBM/fluent-forward-go/fluent/protocol"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// A Poster is a client to be measured.
type Poster struct {
	Post  func(v any)
	Drain func() error
}

// A Setup describes the load and the receiver for one row of the results.
type Setup struct {
	What  What
	Acks  bool          // if true, the receiver decodes and acknowledges chunks; if false, it discards them
	Delay time.Duration // latency of each direction, which delays acknowledgements
}

// Contender returns a contender that posts to a new receiver through the client that mk returns.
func (s Setup) Contender(name string, kind h.Kind, note string, mk func(addr string) (*Poster, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, New: func(*h.Env) (*h.Subject, error) {
		r, err := NewReceiver(!s.Acks, s.Delay)
		if err != nil {
			return nil, err
		}
		p, err := mk(r.Addr)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		await := func(want uint64) error {
			for end := time.Now().Add(20 * time.Second); s.Acks && r.Events.Load() < want; time.Sleep(100 * time.Microsecond) {
				if time.Now().After(end) {
					return fmt.Errorf("%d of %d events arrived", r.Events.Load(), want)
				}
			}
			return nil
		}
		events, bytes, posted := r.Events.Load(), r.Bytes.Load(), uint64(0)
		sub := &h.Subject{
			Run: func(_, n int) {
				for j := range n {
					p.Post(s.What(j))
				}
				posted += uint64(n)
			},
			Drain: func() error { return errors.Join(p.Drain(), await(events+posted)) },
			Close: r.Close,
		}
		if s.Acks {
			sub.Tally = func() (h.Tally, error) {
				return h.Tally{Records: r.Events.Load() - events, Bytes: r.Bytes.Load() - bytes}, nil
			}
		}
		return sub, nil
	}}
}

// Ours returns a constructor of a fluent.Logger. If sync is true, each Post waits until its record
// is written.
func Ours(acks, sync bool) func(addr string) (*Poster, error) {
	return func(addr string) (*Poster, error) {
		l, err := fluent.NewLogger(fluent.Config{Servers: []string{addr}, NoAck: !acks, Sync: sync}, forebay.WhenFull("block"), forebay.OnError(func(batch.Event) {}))
		if err != nil {
			return nil, err
		}
		drain := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			rep, err := l.Close(ctx)
			if err == nil && rep.Undelivered() > 0 {
				err = fmt.Errorf("%s", rep.Account)
			}
			return err
		}
		// Competitors connect in their constructor. A forebay Logger connects when its first record
		// is posted and, without acknowledgements, waits briefly after connecting. The records
		// posted here keep that out of the measurement.
		for range 2 {
			if err := errors.Join(l.Post(Tag, event), l.Flush(context.Background())); err != nil {
				return nil, errors.Join(err, drain())
			}
		}
		return &Poster{Drain: drain, Post: func(v any) {
			if err := l.Post(Tag, v); err != nil {
				panic(err)
			}
		}}, nil
	}
}

// IBM returns a constructor of IBM/fluent-forward-go. The caller collects 100 events for each
// SendPacked.
func IBM(acks bool) func(addr string) (*Poster, error) {
	return func(addr string) (*Poster, error) {
		c := client.New(client.ConnectionOptions{Factory: &client.ConnFactory{Network: "tcp", Address: addr}, RequireAck: acks})
		if err := c.Connect(); err != nil {
			return nil, err
		}
		var entries protocol.EntryList
		send := func() error {
			err := c.SendPacked(Tag, entries)
			entries = entries[:0]
			return err
		}
		return &Poster{Post: func(v any) {
			entries = append(entries, protocol.EntryExt{Timestamp: protocol.EventTime{Time: time.Now()}, Record: v})
			if len(entries) == 100 {
				if err := send(); err != nil {
					panic(err)
				}
			}
		}, Drain: func() error {
			if len(entries) > 0 {
				if err := send(); err != nil {
					return err
				}
			}
			return c.Disconnect()
		}}, nil
	}
}

// Floor returns a minimal client, whose time is a lower bound for these records. Its Post encodes
// the record by hand into one of two buffers, under a lock. Another goroutine writes frames of 64
// KiB.
func Floor(addr string) (*Poster, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	f := &floor{c: c, full: make(chan []byte, 1), free: make(chan []byte, 2), done: make(chan error, 1)}
	f.free <- make([]byte, 0, 80<<10)
	f.cur = make([]byte, 0, 80<<10)
	go f.run()
	return &Poster{Post: f.post, Drain: f.drain}, nil
}

// A floor is the client of Floor. post fills cur while run writes the other buffer.
type floor struct {
	c    net.Conn
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
		b = msgpack.AppendMapHeader(b, 26)
		for i, s := range [...]*string{&v.A, &v.B, &v.C, &v.D, &v.E, &v.F, &v.G, &v.H, &v.I, &v.J, &v.K, &v.L, &v.M,
			&v.N, &v.O, &v.P, &v.Q, &v.R, &v.S, &v.T, &v.U, &v.V, &v.W, &v.X, &v.Y, &v.Z} {
			b = append(b, 0xa1, 'A'+byte(i))
			b = msgpack.AppendStr(b, *s)
		}
	}
	if f.cur = b; len(b) >= 64<<10 {
		f.full <- b
		f.cur = <-f.free
	}
}

func (f *floor) run() {
	var err error
	var head []byte
	for b := range f.full {
		head = msgpack.AppendStr(msgpack.AppendArrayHeader(head[:0], 2), Tag)
		head = msgpack.AppendBinHeader(head, len(b))
		v := net.Buffers{head, b}
		if _, e := v.WriteTo(f.c); e != nil {
			err = e
		}
		f.free <- b[:0]
	}
	f.done <- err
}

func (f *floor) drain() error {
	if len(f.cur) > 0 {
		f.full <- f.cur
	}
	close(f.full)
	return errors.Join(<-f.done, f.c.Close())
}

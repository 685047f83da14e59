package deliver

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// A hung is both a destination and a spool. The field at is the name of the call that hangs; with
// "everywhere", each call hangs. Hanging calls return when the test closes the channel.
type hung struct {
	at string
	testkit.Spill
	until chan struct{}
}

func (d *hung) hang(at string) {
	if d.at == at || d.at == "everywhere" {
		<-d.until
	}
}

func (d *hung) Traits() Traits { return Traits{Inline: d.at == "inline"} }
func (d *hung) Open(l Life) (Session, error) {
	d.hang("open")
	return hungSession{d, l}, nil
}
func (d *hung) Flush(context.Context) error { d.hang("flush"); return nil }
func (d *hung) Close(context.Context) error { d.hang("end"); return nil }
func (d *hung) Append(b *batch.Batch) (uint64, error) {
	d.hang("append")
	return d.Spill.Append(b)
}

type hungSession struct {
	d *hung
	l Life
}

func (s hungSession) Send(b *batch.Batch) error {
	s.d.hang("send")
	if s.d.at == "inline" {
		<-s.d.until
	}
	if s.d.at == "letters" {
		s.l.Answer(b, batch.Outcome{Refused: batch.All(), Refusal: testkit.ErrDown})
	} else if s.d.at == "flush" || s.d.at == "end" {
		s.l.Answer(b, batch.Outcome{})
	} else {
		s.l.Answer(b, batch.FailedOutcome(testkit.ErrDown))
	}
	return nil
}
func (s hungSession) Close() { s.d.hang("close") }

// hungFile is a file whose Close hangs.
type hungFile struct{ until chan struct{} }

func (f *hungFile) Close() error { <-f.until; return nil }

// Shutdown returns in time, regardless of which call hangs.
func TestShutdownIsInTime(t *testing.T) {
	const noDeadline, cancelled = time.Hour, -time.Second
	for _, at := range []string{"open", "send", "close", "flush", "end", "append", "handler", "letters", "callback", "inline", "disk", "everywhere"} {
		for _, spill := range []bool{false, true} {
			for _, limit := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, noDeadline, cancelled} {
				bubble.Test(t, func(t *testing.T) {
					d := &hung{at: at, until: make(chan struct{})}
					h := ErrorHandlerFunc(func(error, *batch.Batch) batch.Outcome { <-d.until; return batch.Outcome{} })
					o := &OutputOptions{CloseTimeout: 2 * time.Second, OnError: func(batch.Event) { d.hang("callback") },
						Slab: slab.Options{FlushInterval: time.Millisecond, SlabBytes: 512, SlabCount: 4}}
					if spill {
						o.Deliver.spill = d
					}
					if at == "handler" || at == "everywhere" {
						o.Deliver.Handler = h
					}
					if at == "letters" || at == "everywhere" {
						o.Deliver.DeadLetter = h
					}
					out := mustOutput(t, d, o)
					if at == "disk" || at == "everywhere" {
						out.files.lines = []io.Closer{&hungFile{d.until}}
					}
					mustLines(t, out, 0, 40, 20)
					time.Sleep(time.Second)
					ctx, cancel := context.WithCancel(t.Context())
					most := limit
					switch limit {
					case noDeadline:
						most = 2 * time.Second
					case cancelled:
						time.AfterFunc(time.Second, cancel)
						most = time.Second
					default:
						ctx, cancel = context.WithTimeout(ctx, limit)
					}
					defer cancel()
					began := time.Now()
					if _, err := out.Shutdown(ctx); err == nil && at == "disk" {
						t.Error("no error although the disk hangs")
					}
					most += 200 * time.Millisecond
					if spill && limit < time.Second {
						most += 500 * time.Millisecond
					}
					if len(out.files.lines) > 0 {
						most += 500 * time.Millisecond
					}
					if took := time.Since(began); took > most {
						t.Errorf("%s hangs, spill %v, limit %s: Shutdown took %s", at, spill, limit, took)
					}
					close(d.until)
				})
			}
		}
	}
}

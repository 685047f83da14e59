package listen

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
)

func TestQuoteIsShortAndPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"GET /\r\n":                 `"GET /  "`,
		"\xff\x00é":                 `"` + "\ufffd é" + `"`,
		strings.Repeat("x", 100):    `"` + strings.Repeat("x", 60) + `…"`,
		strings.Repeat("é", 100):    `"` + strings.Repeat("é", 30) + `…"`,
		"\x1b[31mred\u202e" + "end": `" [31mred end"`,
	} {
		if got := Quote([]byte(in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestRefusalNamesPeerAndReason(t *testing.T) {
	r := Refusal{"forward", "127.0.0.1:1", errors.New("why")}
	if got := r.String(); got != "forward: 127.0.0.1:1: refused: why" {
		t.Error(got)
	}
	if r.Peer = ""; r.String() != "forward: refused: why" {
		t.Error(r)
	}
}

// If a connection cannot be accepted, for example because no file descriptor is free, the server
// pauses before the next attempt.
func TestAcceptPausesWithoutDescriptors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		refused := 0
		s := NewServer(Config{Name: "x", Refused: func(Refusal) { refused++ }}, func(context.Context, *Conn) error { return nil })
		l := &failingListener{err: errors.New("too many open files"), n: 20, closed: make(chan struct{})}
		s.Serve(l)
		time.Sleep(time.Minute)
		synctest.Wait()
		if refused != 20 || l.n != 0 {
			t.Errorf("%d refusals, %d failures left", refused, l.n)
		}
		if took := l.last.Sub(l.first); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("20 attempts took %v", took)
		}
		s.Close(context.Background())
	})
}

// A failingListener fails in its first n calls of Accept, and blocks in the next call until it is
// closed.
type failingListener struct {
	err         error
	n           int
	first, last time.Time // times of the first and the last failure
	closed      chan struct{}
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.n == 0 {
		<-l.closed
		return nil, net.ErrClosed
	}
	l.n--
	l.last = time.Now()
	if l.first.IsZero() {
		l.first = l.last
	}
	return nil, l.err
}
func (l *failingListener) Close() error { close(l.closed); return nil }
func (*failingListener) Addr() net.Addr { return &net.UnixAddr{} }

// Hold fails immediately if the whole budget is too small. If other leases use the budget, Hold
// waits.
func TestHoldWaitsForOtherLeases(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := &budget{total: 1 << 20}
		a, c := &Lease{b: b}, &Lease{b: b}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, n := range []int{0, freeBytes, 1 << 20} {
			if err := a.Hold(ctx, n); err != nil {
				t.Fatal(n, err)
			}
		}
		start := time.Now()
		if err := a.Hold(ctx, 2<<20); err != errNoMemory || time.Since(start) > 0 {
			t.Error(err, time.Since(start))
		}
		if err := c.Hold(ctx, 1<<20); err != errNoMemory || time.Since(start) != time.Minute {
			t.Error(err, time.Since(start))
		}
		time.AfterFunc(time.Second, a.Release)
		if err := c.Hold(context.Background(), 1<<20); err != nil {
			t.Error(err)
		}
		if c.Release(); b.used != 0 {
			t.Errorf("%d bytes are in use after Release", b.used)
		}
	})
}

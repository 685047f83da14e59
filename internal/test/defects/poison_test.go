package defects_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
)

// checkDelivered is called after the server works again. It checks that all n records are
// delivered, and none is dropped.
func checkDelivered(tb testing.TB, l *fluent.Logger, b *received, n int) {
	tb.Helper()
	a := settled(l, time.Hour)
	if got := len(b.firstCopies()); a.Delivered != uint64(n) || a.Dropped.Total() > 0 || got != n {
		tb.Errorf("%d of %d good records arrived: %s", got, n, a)
	}
}

// acceptEveryFourth posts records to a server that accepts only every fourth message for 20 s, and
// ends the connection at all other messages.
func acceptEveryFourth(tb testing.TB) {
	b := new(received)
	var messages atomic.Int64
	start := time.Now()
	f := forward(tb, func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil || messages.Add(1)%4 != 0 && time.Since(start) < 20*time.Second {
				return
			}
			b.add(numbers(m)...)
			if c.Ack(m.Chunk) != nil {
				return
			}
		}
	})
	l := logger(tb, f.Dial, nil)
	post(tb, l, 1, 200)
	checkDelivered(tb, l, b, 200)
}

// resetMostMessages posts records for 10 s to a server that resets the connection at 7 of 10
// messages, chosen at random.
func resetMostMessages(tb testing.TB) {
	for seed := uint64(1); seed <= 3; seed++ {
		b := new(received)
		random := rand.New(rand.NewPCG(seed, 0))
		start := time.Now()
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil || time.Since(start) < 10*time.Second && random.IntN(10) < 7 {
					return
				}
				b.add(numbers(m)...)
				if c.Ack(m.Chunk) != nil {
					return
				}
			}
		}}
		l := logger(tb, f.Dial, func(c *forwardOutput) { c.FrameBytes = 2 << 10 })
		const n = 4000
		for i := 1; i <= n; i += 4 {
			post(tb, l, i, i+3)
			time.Sleep(10 * time.Millisecond)
		}
		checkDelivered(tb, l, b, n)
		_, _ = l.Close(context.Background())
		f.Close()
	}
}

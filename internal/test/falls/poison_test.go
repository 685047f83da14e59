package falls_test

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
)

// kept complains unless a server that is well in the end has got all of n records.
func kept(tb TB, l *fluent.Logger, b *book, n int) {
	tb.Helper()
	a := settled(l, time.Hour)
	if got := len(b.firsts()); a.Delivered != uint64(n) || a.Dropped.Total() > 0 || got != n {
		tb.Errorf("%d of %d good records arrived: %s", got, n, a)
	}
}

// everyFourth posts to a server that takes every 4th message for 20 s, and ends the
// connection at the others.
func everyFourth(tb TB) {
	b := new(book)
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
	kept(tb, l, b, 200)
}

// resets posts for 10 s to a server that resets the connection at 7 of 10 messages,
// by the dice of one seed.
func resets(tb TB) {
	for seed := uint64(1); seed <= 3; seed++ {
		b := new(book)
		dice := rand.New(rand.NewPCG(seed, 0))
		start := time.Now()
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil || time.Since(start) < 10*time.Second && dice.IntN(10) < 7 {
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
		kept(tb, l, b, n)
		_, _ = l.Close(background)
		f.Close()
	}
}

package slablog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// A Log and a model take the same random steps. The model is a list of the accepted records that
// are not leased, and a list of the leases. Each record is leased once, in order. The account
// balances after each step, memory does not change before Release, and all memory is free at the
// end.
func TestReaderModel(t *testing.T) {
	for seed := range testkit.Walks(t, 150) {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { readerModel(t, seed) })
		}) {
			return
		}
	}
}

// modelLease is a lease with the content that it had when it was leased.
type modelLease struct {
	l       *Lease
	was     string
	n, open int
}

func readerModel(t *testing.T, seed uint64) {
	rng := testkit.Rand(seed)
	o := &slab.Options{
		SlabBytes: 512 << rng.IntN(2), SlabCount: 2 + rng.IntN(8), MaxRecord: 4 << 10, OnError: quiet,
		FlushInterval: time.Duration(1+rng.IntN(20)) * time.Millisecond,
		WhenFull:      []slab.WhenFull{slab.DropNewest(), slab.DropOldest()}[rng.IntN(2)],
	}
	var wants Consumer
	if rng.IntN(2) == 0 {
		wants.Limits = batch.Limits{Bytes: rng.IntN(3000), Records: rng.IntN(40)}
	}
	w, log, err := New(o, wants)
	if err != nil {
		t.Fatal(err)
	}

	var unread []string // accepted records that are not leased, oldest first
	var out []*modelLease
	var settled, refused, evicted uint64
	check := func(step string) {
		t.Helper()
		s := log.Stats(batch.Account{Accepted: settled, Delivered: settled})
		pending := len(unread) - int(s.Dropped[batch.Full]-refused-evicted) // without the evicted records that are still in unread
		for _, m := range out {
			pending += m.open
			if got := string(m.l.Batch().AppendTo(nil)); got != m.was {
				t.Fatalf("%s: the memory of a lease has changed", step)
			}
		}
		if s.Check() != nil || s.Pending.Total() != uint64(pending) {
			t.Fatalf("%s: %v, want %d pending: %v", step, s.Account, pending, s.Check())
		}
	}
	next := func() bool {
		l, ended := log.Next()
		if at := log.Due(); l == nil && !at.IsZero() && !at.After(time.Now()) {
			l, ended = log.Next()
		}
		if ended {
			t.Fatal("the reader has ended")
		}
		if l == nil {
			return false
		}
		m := &modelLease{l: l, was: string(l.Batch().AppendTo(nil)), n: l.Batch().Len(), open: l.Batch().Len()}
		for _, rec := range l.Batch().All() {
			for len(unread) > 0 && unread[0] != string(rec.Data) { // these records were evicted
				unread = unread[1:]
				evicted++
			}
			if len(unread) == 0 {
				t.Fatalf("leased out of order, or twice: %.20q", rec.Data)
			}
			unread = unread[1:]
		}
		if lim := wants.Limits; lim.Records > 0 && m.n > lim.Records || lim.Bytes > 0 && len(m.was) > lim.Bytes && m.n > 1 {
			t.Fatalf("%d records of %d bytes, limits %+v", m.n, len(m.was), lim)
		}
		out = append(out, m)
		return true
	}
	settle := func(m *modelLease, n int) {
		if !m.l.Settle(n) {
			t.Fatalf("%d of %d open records are not settled", n, m.open)
		}
		m.open -= n
		settled += uint64(n)
	}
	for i := range 400 {
		switch k := rng.IntN(12); {
		case k < 7:
			size := 10 + rng.IntN(120)
			if rng.IntN(40) == 0 {
				size = rng.IntN(3000)
			}
			text := fmt.Sprintf("%d %s\n", i, strings.Repeat("x", size))
			switch err := w.WriteRecord([]byte(text), batch.Meta{}); {
			case err == nil:
				unread = append(unread, text)
			case errors.Is(err, slab.ErrDropped):
				refused++
			default:
				t.Fatal(err)
			}
		case k < 9:
			next()
		case k < 11 && len(out) > 0:
			m := out[rng.IntN(len(out))]
			settle(m, rng.IntN(m.open+1))
			if m.open == 0 {
				m.l.Release()
				for j := range out {
					if out[j] == m {
						out = append(out[:j], out[j+1:]...)
						break
					}
				}
			}
		default:
			time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		}
		check(fmt.Sprint("step ", i))
	}
	for rest := true; rest; { // in the end, all records are leased and settled
		for _, m := range out {
			settle(m, m.open)
			m.l.Release()
		}
		out = nil
		time.Sleep(time.Second)
		for rest = false; next(); rest = true {
		}
	}
	evicted += uint64(len(unread))
	unread = nil
	check("the end")
	if s := log.Stats(batch.Account{}); s.SlabsInUse != 0 || s.OversizeMem != 0 {
		t.Errorf("memory left in use: %+v", s)
	}
	log.Close()
	log.End(t.Context(), true)
	log.Leave()
}

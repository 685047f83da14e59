package fluent

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// If the server does not acknowledge a record, other records wait for about one AckTimeout. Until
// the record becomes a dead letter, it is sent again from time to time. This delays other records
// for at most a tenth of the time.
func TestRecordWithoutAckDelaysOthersBriefly(t *testing.T) {
	seed := testkit.Seed(t)
	for i, tt := range []struct {
		hangs bool
		bad   int
	}{{false, 1}, {true, 3}, {false, 3}, {true, 1}} {
		if testkit.Share(seed, i, 3) {
			bubble.Test(t, func(t *testing.T) { silentRecord(t, tt.hangs, tt.bad) })
		}
	}
}

// silentRecord tests a server that does not acknowledge certain records. The parameter bad is the
// number of such records. If hangs is true, the server also stops reading the connection at such a
// record.
func silentRecord(t *testing.T, hangs bool, bad int) {
	const every, ack = time.Second, 30 * time.Second
	const n = 3 * int(time.Hour/every) / 2
	var r received
	arrived := make([]time.Time, n)
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			if slices.ContainsFunc(m.Entries, func(e []byte) bool { return bytes.Contains(e, []byte("BAD")) }) {
				if hangs {
					_, _ = io.Copy(io.Discard, c)
					return
				}
				continue
			}
			r.add(m)
			for _, e := range m.Entries {
				if k := recordNumber(e); arrived[k].IsZero() {
					arrived[k] = time.Now()
				}
			}
			if c.Ack(m.Chunk) != nil {
				return
			}
		}
	}}
	defer f.Close()
	l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial, AckTimeout: ack}, BufferBytes: 8 << 20})
	posted := make([]time.Time, n)
	for i := range n {
		if i >= 120 && i < 120+20*bad && i%20 == 0 {
			if err := l.Post("x", map[string]any{"n": -1, "x": "BAD"}); err != nil {
				t.Fatal(err)
			}
		}
		posted[i] = time.Now()
		if err := l.Post("x", map[string]any{"n": i}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(every)
	}
	time.Sleep(time.Minute)
	rep := closeLogger(t, l)
	if rep.Delivered != uint64(n) || rep.Dropped[batch.Poison] != uint64(bad) {
		t.Errorf("hangs %v, %d bad: %s", hangs, bad, rep.Account)
	}
	late, top := 0, -1
	for _, k := range r.firstCopies("x") {
		if k < top {
			late++
		}
		top = max(top, k)
	}
	// A server that does not hang accepts later chunks before the chunk of the bad record is sent
	// again.
	if most := 3 * bad; late > most || hangs && late > 0 {
		t.Errorf("hangs %v, %d bad: %d records arrived out of order", hangs, bad, late)
	}
	first, later, waits := time.Duration(0), time.Duration(0), 0
	for i := range n {
		d := arrived[i].Sub(posted[i])
		if i < 120+int(2*ack/every)*bad {
			first = max(first, d)
			continue
		}
		later = max(later, d)
		if d > 2*time.Second {
			waits++
		}
	}
	if first > time.Duration(bad)*ack*5/4 || later > ack*5/4 || waits > n/8 {
		t.Errorf("hangs %v, %d bad: others waited %s at first, %s later, and more than 2 s in %d of %d cases", hangs, bad, first, later, waits, n)
	}
	t.Logf("hangs %v, %d bad: others waited %s at first, %s later, and more than 2 s in %d of %d cases", hangs, bad, first, later, waits, n)
}

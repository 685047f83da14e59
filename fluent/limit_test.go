package fluent

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A chunkMeter is a connection that is read like fluentd reads it: up to 16 KiB at a time. As the
// size of a message, fluentd takes the number of bytes read since the previous message. These bytes
// may include parts of the neighboring messages.
type chunkMeter struct {
	net.Conn
	rng  *rand.Rand
	size int // bytes read since the last message

	mu      sync.Mutex
	arrived []byte
	err     error
	more    chan struct{} // capacity 1
}

func newChunkMeter(nc net.Conn, rng *rand.Rand) *chunkMeter {
	m := &chunkMeter{Conn: nc, rng: rng, more: make(chan struct{}, 1)}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := nc.Read(buf)
			m.mu.Lock()
			m.arrived, m.err = append(m.arrived, buf[:n]...), err
			m.mu.Unlock()
			select {
			case m.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	return m
}

func (m *chunkMeter) Read(p []byte) (int, error) {
	for {
		m.mu.Lock()
		n, err := copy(p[:min(len(p), 1+m.rng.IntN(16<<10))], m.arrived), m.err
		m.arrived = m.arrived[n:]
		m.mu.Unlock()
		if m.size += n; n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, io.EOF
		}
		<-m.more
	}
}

// fluentd drops a message that exceeds its chunk_size_limit and sends no acknowledgement. If a
// record of one tag is too large, the records of another tag keep their order and are delayed for
// at most ten minutes.
func TestRecordAboveChunkSizeLimitDoesNotReorderOtherTags(t *testing.T) {
	const limit = 32 << 10
	n := testkit.Scale(500, 4000)
	type row struct { // recordNumber expects the number in the first field
		N int
		X string
	}
	// Without pauses, it depends on the seed whether records of the other tag are sent in the
	// meantime.
	for _, pace := range []time.Duration{0, 0, 0, 0, 0, time.Millisecond, 10 * time.Millisecond} {
		bubble.Test(t, func(t *testing.T) {
			rng := testkit.Rand(testkit.Seed(t))
			at, size := rng.IntN(n), 20+rng.IntN(200)
			var r received
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
				in := newChunkMeter(c.Conn, rng)
				c.Conn = in
				for {
					m, err := c.Next()
					if err != nil {
						return
					}
					dropped := in.size > limit
					if in.size = 0; dropped {
						continue
					}
					r.add(m)
					if c.Ack(m.Chunk) != nil {
						return
					}
				}
			}}
			defer f.Close()
			l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}, BufferBytes: 8 << 20})
			began := time.Now()
			for i := range n {
				if i == at {
					if err := l.Post("large", row{-1, strings.Repeat("x", 100<<10)}); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.Post("small", row{i, strings.Repeat("x", size)}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(pace)
			}
			took := map[bool]time.Duration{}
			for a := l.Account(); a.Pending.Total() > 0 && time.Since(began) < 3*time.Hour; a = l.Account() {
				time.Sleep(time.Second)
				took[a.Delivered == uint64(n)] = time.Since(began)
			}
			if took[false] > 10*time.Minute+time.Duration(n)*pace {
				t.Errorf("%s: the small records took %s", pace, took[false])
			}
			if rep := closeLogger(t, l); rep.Delivered != uint64(n) || rep.Dropped[batch.Poison] != 1 {
				t.Errorf("%s: %s", pace, rep.Account)
			}
			if got := r.firstCopies("small"); len(got) != n || !slices.IsSorted(got) {
				t.Errorf("%s: %d small records arrived, in order: %v", pace, len(got), slices.IsSorted(got))
			}
			t.Logf("%s: the small records of %d bytes took %s, the large one %s", pace, size, took[false], took[true])
		})
	}
}

package slablog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// defaults are the options that the zero Options resolve to.
var defaults, _ = Resolve(slab.Options{})

func TestMain(m *testing.M) {
	wrongLife = func(from, to life) { panic(fmt.Sprintf("a Writer that is %v becomes %v", from, to)) }
	goleak.VerifyTestMain(m)
}

// quiet is an OnError for tests that cause errors deliberately.
func quiet(batch.Event) {}

// checkAccount checks that the account balances, that nothing is pending, and that it has the given
// counts.
func checkAccount(t testing.TB, w *pump, accepted, delivered uint64, drops batch.Drops) {
	t.Helper()
	a := w.Account()
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	if a.Accepted != accepted || a.Delivered != delivered || a.Dropped != drops {
		t.Errorf("account is %v, want accepted=%d delivered=%d dropped={%v}", a, accepted, delivered, drops)
	}
	if n := a.Pending.Total(); n != 0 {
		t.Errorf("%d records pending at rest: %v", n, a)
	}
}

func closeNow(t testing.TB, w *pump) batch.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := w.Shutdown(ctx)
	if err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	return r
}

// memory is a destination that stores its data in memory. The field act, if set, determines the
// result of each write.
type memory struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	calls int
	// act returns how many bytes the write with number call accepts (-1: all), and its error.
	act func(call int, p []byte) (n int, err error)
}

func (m *memory) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := -1, error(nil)
	call := m.calls
	m.calls++
	if m.act != nil {
		n, err = m.act(call, p)
	}
	if n < 0 || n > len(p) {
		n = len(p)
	}
	m.buf.Write(p[:n])
	return n, err
}

func (m *memory) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.buf.String()
}

// gate is a destination whose writes hang until it is opened.
type gate struct {
	memory
	entered chan struct{} // gets a value for each write that arrives before open
	opened  chan struct{}
	once    sync.Once
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 1000), opened: make(chan struct{})} }

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

func (g *gate) Write(p []byte) (int, error) {
	select {
	case <-g.opened:
	default:
		g.entered <- struct{}{}
		<-g.opened
	}
	return g.memory.Write(p)
}

// line returns record i, which is n bytes long. n must be large enough for the number.
func line(i, n int) []byte {
	s := strconv.Itoa(i)
	if pad := n - len(s) - 1; pad > 0 {
		s += strings.Repeat(".", pad)
	}
	return []byte(s + "\n")
}

// numbers returns the numbers of the records in out, and fails the test if a line is torn.
func numbers(t testing.TB, out string) []int {
	t.Helper()
	var ns []int
	for l := range strings.Lines(out) {
		if !strings.HasSuffix(l, "\n") {
			t.Fatalf("torn last line %.40q", l)
		}
		n, err := strconv.Atoi(strings.TrimRight(l, ".\n"))
		if err != nil {
			t.Fatalf("torn line %.80q", l)
		}
		ns = append(ns, n)
	}
	return ns
}

// wantSequence fails the test unless ns consists of first, first+1, and so on up to end-1.
func wantSequence(t testing.TB, ns []int, first, end int) {
	t.Helper()
	if len(ns) != end-first {
		t.Errorf("%d records arrived, want %d", len(ns), end-first)
	}
	for i, n := range ns {
		if n != first+i {
			t.Fatalf("record %d is at position %d, want %d there", n, i, first+i)
		}
	}
}

var errDown = errors.New("destination is down")

// recorder is a destination that stores the records that it receives and answers as configured.
type recorder struct {
	mu      sync.Mutex
	got     []string
	tickets []uint64
	sizes   []int
	bytes   []int
	markers []string
	answer  func(call int, b *batch.Batch) batch.Outcome
	limits  batch.Limits
	calls   int
}

func (r *recorder) Limits() batch.Limits { return r.limits }

func (r *recorder) Send(_ context.Context, b *batch.Batch) (o batch.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Runs[0].Slot(0).Flags&layout.FlagMarker != 0 {
		r.markers = append(r.markers, string(b.At(0).Data))
		return o
	}
	r.calls++
	r.sizes = append(r.sizes, b.Len())
	r.bytes = append(r.bytes, b.Bytes())
	if r.answer != nil {
		o = r.answer(r.calls-1, b)
	}
	for i, rec := range b.All() {
		if sound := o.Check(b.Len()) == nil; sound && !o.Open.Has(i) && !o.Refused.Has(i) {
			r.got = append(r.got, string(rec.Data))
			r.tickets = append(r.tickets, rec.Ticket)
		}
	}
	return o
}

func (r *recorder) joined() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.got, "")
}

func mustWrite(t testing.TB, w *pump, i, n int) {
	t.Helper()
	if _, err := w.Write(line(i, n)); err != nil {
		t.Fatalf("write %d: %v", i, err)
	}
}

func drops(reason batch.Reason, n uint64) (d batch.Drops) {
	d[reason] = n
	return d
}

var _ = fmt.Sprint

// killLine returns a record whose end repeats its beginning, so that torn and invented records are
// detected.
func killLine(g int, i uint64, pad int) []byte {
	return fmt.Appendf(nil, "%d %d %s %d %d\n", g, i, strings.Repeat("x", pad), g, i)
}

func parseKillLine(l string) (g int, i uint64, err error) {
	f := strings.Fields(l)
	if !strings.HasSuffix(l, "\n") || len(f) < 4 || f[0] != f[len(f)-2] || f[1] != f[len(f)-1] {
		return 0, 0, fmt.Errorf("torn or invented record %.80q", l)
	}
	if g, err = strconv.Atoi(f[0]); err == nil {
		i, err = strconv.ParseUint(f[1], 10, 64)
	}
	return g, i, err
}

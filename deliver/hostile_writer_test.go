package deliver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A hostileWriter is a destination that stores its text in memory. Its calls fail at random in all
// ways. A call that panics or calls runtime.Goexit stores nothing.
type hostileWriter struct {
	k          *inlineWalk
	closeFrees bool // Close ends hanging calls

	mu              sync.Mutex
	rng             *rand.Rand
	faults          []int   // possible faults, see call
	fail            float64 // probability of a fault per call
	ends            bool    // a fault may mean that the destination has ended
	text            []byte
	flushed, synced int // length of text at the last Flush, and at the last Sync
	room            int // last result of Room; 0: none
	gone            int // number of calls that reported that the destination has ended
	busy, closed    bool
	hanging         int
	free            chan struct{} // closed to end hanging calls
}

// newHostileWriter returns a writer with a random set of possible faults.
func newHostileWriter(k *inlineWalk) *hostileWriter {
	r := testkit.Rand(k.rng.Uint64())
	return &hostileWriter{k: k, rng: r, free: make(chan struct{}), closeFrees: r.IntN(2) == 0, faults: r.Perm(10)[:1+r.IntN(10)]}
}

// destination returns a destination with some of the methods. If shape is odd, it has Flush.
func (w *hostileWriter) destination(shape int) Destination {
	switch shape {
	case 0:
		return ToWriter(struct{ io.Writer }{w})
	case 1:
		return ToWriter(struct {
			io.Writer
			hasFlush
		}{w, w})
	case 2:
		return ToWriteCloser(struct {
			io.WriteCloser
			hasWritev
			syncer
		}{w, w, w})
	case 4:
		return SendFunc(Traits{Inline: true}, w.send)
	}
	return ToWriteCloser(w)
}

type (
	hasFlush  interface{ Flush() error }
	hasWritev interface {
		Writev(bufs [][]byte) (int64, error)
	}
)

func (w *hostileWriter) Write(p []byte) (int, error) {
	n, err := w.call(context.Background(), len(p))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room > 0 && len(p) > w.room && bytes.Count(p, []byte("\n")) > 1 {
		w.k.errorf("a write of %d bytes, the room was %d", len(p), w.room)
	}
	w.text = append(w.text, p[:min(max(n, 0), len(p))]...)
	return n, err
}

func (w *hostileWriter) Writev(bufs [][]byte) (int64, error) {
	n, err := w.Write(bytes.Join(bufs, nil))
	return int64(n), err
}

func (w *hostileWriter) Room() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room = 1 + w.rng.IntN(3000)
	return int64(w.room)
}

func (w *hostileWriter) Flush() error { return w.command(&w.flushed) }
func (w *hostileWriter) Sync() error  { return w.command(&w.synced) }

// command is a call of Flush or Sync.
func (w *hostileWriter) command(upTo *int) error {
	_, err := w.call(context.Background(), 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		*upTo = len(w.text)
	}
	return err
}

// Close may fail or hang. No call may follow, unless one is in progress.
func (w *hostileWriter) Close() error {
	w.mu.Lock()
	fault := -1
	if w.rng.Float64() < w.fail {
		fault = w.rng.IntN(8)
	}
	if w.closed = !w.busy; w.closeFrees {
		w.freeLocked()
	}
	w.mu.Unlock()
	switch fault {
	case 0:
		return testkit.ErrDown
	case 1:
		panic("on purpose")
	case 2:
		runtime.Goexit()
	case 3:
		w.hang(context.Background())
	}
	return nil
}

// send stores some records of b, and may refuse others.
func (w *hostileWriter) send(ctx context.Context, b *batch.Batch) (o batch.Outcome) {
	n, err := w.call(ctx, b.Len())
	w.mu.Lock()
	defer w.mu.Unlock()
	if n = min(max(n, 0), b.Len()); n < b.Len() {
		o = outcomeOfWrite(b, n, err)
	}
	var refused []int
	for i, rec := range b.All() {
		switch {
		case i >= n:
		case rec.Data[5] == '7':
			refused = append(refused, i)
		default:
			w.text = append(w.text, rec.Data...)
		}
	}
	o.Refused = batch.Of(refused...)
	return o
}

// call begins a call of the destination. It returns how much of size is stored, and the error, or
// it does not return.
func (w *hostileWriter) call(ctx context.Context, size int) (n int, err error) {
	w.mu.Lock()
	if w.busy || w.closed {
		w.k.errorf("a call of the destination during another one (%v) or after Close (%v)", w.busy, w.closed)
	}
	w.busy = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy = false
	}()
	fault := w.fault()
	if fault == 0 {
		w.hang(ctx)
		if fault = w.fault(); ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	w.mu.Lock()
	part, delay := w.rng.IntN(size+1), time.Duration(w.rng.IntN(200))*time.Millisecond
	switch {
	case fault == 8 && w.ends:
		w.gone++
		err = os.ErrClosed
	case fault >= 7:
		err = []error{testkit.ErrDown, io.ErrShortWrite, batch.RetryAfter(testkit.ErrDown, 7*delay), batch.Fatal(testkit.ErrDown)}[w.rng.IntN(4)]
	}
	w.mu.Unlock()
	switch fault {
	case 1:
		panic("on purpose")
	case 2:
		runtime.Goexit()
	case 3:
		time.Sleep(delay)
	case 4: // a short count without an error
		return part, nil
	case 5:
		return size + part, nil
	case 6:
		return -1, nil
	case 7:
		return 0, err
	case 8, 9:
		return part, err
	}
	return size, nil
}

// fault returns the number of one of the faults of this writer, or -1 for none.
func (w *hostileWriter) fault() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rng.Float64() >= w.fail {
		return -1
	}
	return w.faults[w.rng.IntN(len(w.faults))]
}

// hang waits until heal is called or ctx ends.
func (w *hostileWriter) hang(ctx context.Context) {
	w.mu.Lock()
	w.hanging++
	free := w.free
	w.mu.Unlock()
	select {
	case <-free:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hanging--
}

// hangs reports whether a call is in progress.
func (w *hostileWriter) hangs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy || w.hanging > 0
}

func (w *hostileWriter) goneCalls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

func (w *hostileWriter) set(fail float64, ends bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail, w.ends = fail, ends
}

// heal ends hanging calls. Later calls succeed.
func (w *hostileWriter) heal() {
	w.set(0, false)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freeLocked()
}

func (w *hostileWriter) freeLocked() {
	close(w.free)
	w.free = make(chan struct{})
}

// stored returns the text that has arrived. After "flush" or "sync" it omits what the destination
// still buffers.
func (w *hostileWriter) stored(after string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	end := len(w.text)
	switch {
	case after == "sync" && (w.k.shape == 2 || w.k.shape == 3):
		end = w.synced
	case after != "" && w.k.shape%2 == 1:
		end = w.flushed
	}
	return slices.Clone(w.text[:end])
}

// recordOf returns the record of call i. Some are larger than a slab or than MaxRecord.
func recordOf(i int) []byte {
	size := i * i % 61
	switch {
	case i%97 == 96:
		size = 4000
	case i%13 == 12:
		size = i * 7 % 2500
	}
	return fmt.Appendf(nil, "%06d%s;\n", i, strings.Repeat("x", size))
}

// An inlineText is the text that a process has written.
type inlineText struct {
	records  []int
	repeated bool   // a record is there twice
	gaps     uint64 // number of dropped records according to the gap markers
	torn     int    // number of partial lines that were ended
}

// parse reads a text. Each line is a record, a gap marker, or the beginning of one.
func (k *inlineWalk) parse(text []byte) (x inlineText) {
	k.mu.Lock()
	calls, seen := k.calls, map[int]bool{}
	k.mu.Unlock()
	for line := range bytes.Lines(text) {
		body, ended := bytes.CutSuffix(line, []byte("\n"))
		i, err := strconv.Atoi(string(line[:min(6, len(line))]))
		switch whole := err == nil && i < len(calls); {
		case whole && bytes.Equal(line, recordOf(i)):
			x.records, x.repeated = append(x.records, i), x.repeated || seen[i]
			seen[i] = true
			continue
		case bytes.HasPrefix(body, []byte("droppe")):
			for field := range strings.FieldsSeq(string(body)) {
				_, n, _ := strings.Cut(field, "=")
				gap, _ := strconv.ParseUint(n, 10, 64)
				x.gaps += gap
			}
			continue
		case len(body) >= 6 && !(whole && bytes.HasPrefix(recordOf(i), body)):
			k.errorf("line %.60q", line)
		}
		if ended {
			x.torn++
		}
	}
	return x
}

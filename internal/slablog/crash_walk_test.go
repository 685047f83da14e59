//go:build linux || darwin

package slablog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// walkKey identifies a record by the number of the Writer that wrote it and its number in that
// Writer.
type walkKey struct {
	life int
	i    uint64
}

// walkDest is a destination that answers on request of the test. It can be used as a sender or an
// io.Writer. It stores which records are settled.
type walkDest struct {
	limits  batch.Limits
	answers chan func(*batch.Batch) batch.Outcome
	writes  chan func(size int) (int, error)

	mu             sync.Mutex
	settled        map[walkKey]bool
	uncertain      map[walkKey]bool // settled records that may still be in the file, because their batch is not completely settled
	settledOfBatch []walkKey        // settled records of the current batch
	text           []byte           // bytes that Write has received since the last complete line
	wrong          []string
}

func (d *walkDest) done(line []byte, uncertain bool) walkKey {
	life, i, err := parseKillLine(string(line))
	k := walkKey{life, i}
	if err != nil || d.settled[k] {
		d.wrong = append(d.wrong, fmt.Sprintf("settled twice, or %v: %v", err, k))
	}
	d.settled[k], d.uncertain[k] = true, uncertain
	return k
}

func (d *walkDest) Limits() batch.Limits { return d.limits }

func (d *walkDest) Send(ctx context.Context, b *batch.Batch) (o batch.Outcome) {
	select {
	case f := <-d.answers:
		if f != nil {
			o = f(b)
		}
	case <-ctx.Done():
		return batch.FailedOutcome(ctx.Err())
	}
	if o.Check(b.Len()) != nil {
		return o
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, r := range b.All() {
		if !o.Open.Has(i) {
			d.settledOfBatch = append(d.settledOfBatch, d.done(r.Data, true))
		}
	}
	if o.Open.Len(b.Len()) == 0 {
		for _, k := range d.settledOfBatch {
			d.uncertain[k] = false
		}
		d.settledOfBatch = nil
	}
	return o
}

// answer returns the next random answer of the destination.
func (d *walkDest) answer(rng *rand.Rand) func(*batch.Batch) batch.Outcome {
	kind, seed := rng.IntN(14), rng.Uint64()
	return func(b *batch.Batch) (o batch.Outcome) {
		rng := rand.New(rand.NewPCG(seed, 0))
		some := []int{rng.IntN(b.Len())}
		for i := some[0] + 1; i < b.Len(); i++ {
			if rng.IntN(3) == 0 {
				some = append(some, i)
			}
		}
		switch kind {
		case 0:
			return failed()
		case 1:
			return partly(rng.IntN(b.Len() + 1))
		case 2:
			return batch.Outcome{Open: batch.Of(some...), Why: errDown}
		case 3:
			return refused(some...)
		case 4:
			return partly(b.Len() + 1) // an index outside the batch
		case 5:
			panic("on purpose")
		case 6:
			runtime.Goexit()
		}
		return o
	}
}

// walkDict is a walkDest with a dictionary of streams.
type walkDict struct{ *walkDest }

func (walkDict) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	return append(dst, fmt.Sprint(id, strings.Repeat(" long", 1000*int(id%8)))...), id > 0
}

func (walkDict) Stream(def []byte) uint32 {
	id, _ := strconv.Atoi(strings.Fields(string(def))[0])
	return uint32(id)
}

// walkWriter is a walkDest used as an io.Writer.
type walkWriter struct{ *walkDest }

func (d walkWriter) Write(p []byte) (n int, err error) {
	n = len(p)
	if f := <-d.writes; f != nil {
		n, err = f(n)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text = append(d.text, p[:n]...)
	for {
		line, rest, ok := bytes.Cut(d.text, []byte("\n"))
		if !ok {
			return n, err
		}
		d.done(append(line[:len(line):len(line)], '\n'), true)
		d.text = rest
	}
}

// A crashLife is one of several Writers that use the same directory one after another.
type crashLife struct {
	t    *testing.T
	rng  *rand.Rand
	life int
	what string
	o    slab.Options
	w    *pump
	d    *walkDest
	sink bool
	open sync.Once

	mu      sync.Mutex
	number  uint64
	calls   map[walkKey]bool // true if the call has not returned
	removed map[walkKey]bool // records that were in a file and no longer are
	present map[walkKey]bool
	waiting int
}

func (l *crashLife) fatalf(format string, args ...any) {
	l.t.Helper()
	l.t.Fatalf("life %d, %s: %s", l.life, l.what, fmt.Sprintf(format, args...))
}

// free makes the destination accept everything from now on.
func (l *crashLife) free() {
	l.open.Do(func() { close(l.d.answers); close(l.d.writes) })
}

func startLife(t *testing.T, rng *rand.Rand, life int, dir string) *crashLife {
	policy := func() slab.WhenFull {
		return []slab.WhenFull{slab.DropOldest(), slab.DropNewest(), slab.Block(), slab.BlockFor(2 * time.Millisecond)}[rng.IntN(4)]
	}
	o := slab.Options{
		SlabBytes: 512 << rng.IntN(3), SlabCount: 2 + rng.IntN(5)*(1+rng.IntN(2)), MaxRecord: []int{300, 3000, 3000}[rng.IntN(3)],
		FlushInterval: []time.Duration{-1, time.Millisecond, 3 * time.Millisecond}[rng.IntN(3)], FlushLevel: slog.LevelError + slog.Level(4*rng.IntN(2)),
		WhenFull: policy(), OnError: quiet, Crash: &slab.Crash{Dir: dir, Required: rng.IntN(2) == 0},
	}
	if rng.IntN(2) == 0 {
		o.ImportantWhenFull = policy()
	}
	if rng.IntN(3) == 0 {
		o.Reserve = rng.IntN(o.SlabCount)
	}
	if rng.IntN(4) == 0 {
		o.SlabRecords = 2 + rng.IntN(4)
	}
	d := &walkDest{answers: make(chan func(*batch.Batch) batch.Outcome), writes: make(chan func(int) (int, error)), settled: map[walkKey]bool{}, uncertain: map[walkKey]bool{}}
	d.limits = []batch.Limits{{}, {Records: 1}, {Records: 4}, {Bytes: 200}, {Records: 3, Bytes: 1500}}[rng.IntN(5)]
	l := &crashLife{t: t, rng: rng, life: life, o: o, d: d, calls: map[walkKey]bool{}, removed: map[walkKey]bool{}, present: map[walkKey]bool{}}
	var c *retrier
	kind := rng.IntN(5)
	switch kind {
	case 0, 1:
		c = consumerFor(walkWriter{d})
		c.wants.Vectors = kind == 1
	case 2:
		c = consumerFor(d)
	default:
		c = consumerFor(walkDict{d})
	}
	c.wait, c.most, c.wants.Inline = time.Millisecond, 1+rng.IntN(4), rng.IntN(2) == 0
	l.w = mustSink(t, c, &o)
	l.sink = kind > 1
	l.what = fmt.Sprintf("kind %d, inline %t, %+v, %+v", kind, c.wants.Inline, o, d.limits)
	t.Cleanup(func() { // ends hanging calls if the test has failed
		l.free()
		_ = l.w.Close()
	})
	return l
}

func (l *crashLife) write() {
	size := l.rng.IntN(100)
	if l.rng.IntN(12) == 0 {
		size = l.rng.IntN(2600)
	}
	m := batch.Meta{Level: []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelInfo, slog.LevelError, slog.LevelError + 4}[l.rng.IntN(5)]}
	if l.sink {
		m.Stream = uint32(l.rng.IntN(30))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == 6 {
		return
	}
	k := walkKey{l.life, l.number}
	l.number++
	l.waiting++
	l.calls[k] = true
	go func() {
		err := l.w.WriteRecord(killLine(k.life, k.i, size), m)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiting--
		if l.calls[k] = false; err != nil {
			delete(l.calls, k)
		}
	}()
}

func (l *crashLife) step() {
	switch k := l.rng.IntN(20); {
	case k < 2:
		time.Sleep(time.Millisecond)
	case k < 3:
		wait := time.Duration(1+l.rng.IntN(5)) * time.Millisecond
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			_ = l.w.Flush(ctx)
		}()
	case k < 9 && l.sink:
		select {
		case l.d.answers <- l.d.answer(l.rng):
		default:
		}
	case k < 9:
		part, err := l.rng.Float64(), []error{nil, nil, errDown}[l.rng.IntN(3)]
		if l.rng.IntN(3) > 0 {
			part, err = 1, nil
		}
		select {
		case l.d.writes <- func(size int) (int, error) { return int(part * float64(size)), err }:
		default:
		}
	default:
		l.write()
	}
}

// heldIn returns the keys of all records in the files of a directory.
func heldIn(t *testing.T, dir string) (keys []walkKey) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(dir, "*"+crashfile.Suffix))
	for _, p := range paths { // oldest first
		im, err := crashfile.Read(p)
		if err != nil || im.Damage() != "" || im.HeapOnly+im.Unreturned > 0 {
			t.Fatalf("%v, %s, %d on the heap, %d not returned", err, im.Damage(), im.HeapOnly, im.Unreturned)
		}
		for _, r := range im.Records {
			life, i, err := parseKillLine(string(r.Data))
			if err != nil {
				t.Fatalf("ticket %d: %v", r.Ticket, err)
			}
			keys = append(keys, walkKey{life, i})
		}
	}
	return keys
}

// check compares the files with the account, and with the results of the calls and of the
// destination.
func (l *crashLife) check(a batch.Account) {
	l.t.Helper()
	held := heldIn(l.t, l.o.Crash.Dir)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if len(l.d.wrong) > 0 {
		l.fatalf("%v", l.d.wrong)
	}
	uncertain, now := 0, map[walkKey]bool{}
	for _, k := range held {
		underWay, returned := l.calls[k]
		switch {
		case now[k]:
			l.fatalf("%v is there twice", k)
		case l.removed[k]:
			l.fatalf("%v was removed from the files and is back", k)
		case k.life == l.life && (!returned || underWay):
			l.fatalf("%v is there, and its call returned an error, or none yet (%v)", k, underWay)
		case l.d.settled[k] && !l.d.uncertain[k]:
			l.fatalf("%v is there, and was settled", k)
		case l.d.settled[k]:
			uncertain++
		}
		now[k] = true
	}
	for k := range l.present {
		if !now[k] {
			l.removed[k] = true
		}
	}
	l.present = now
	if err := a.Check(); err != nil {
		l.fatalf("%v", err)
	}
	if n := int(a.Pending.Total()); n > len(held) || n < len(held)-uncertain || l.sink && n != len(held)-uncertain {
		l.fatalf("%d records are in the files, %d of them settled; %v", len(held), uncertain, a)
	}
	if l.w.conf.o.WhenFull != slab.DropOldest() && l.w.conf.o.ImportantWhenFull != slab.DropOldest() {
		for k, underWay := range l.calls {
			if !underWay && !now[k] && !l.d.settled[k] {
				l.fatalf("%v, whose call has returned, is lost", k)
			}
		}
	}
}

// Several Writers use one directory one after another, with random options and random steps. Each
// is killed, closed, or closed without enough time. After each step the files match the account:
// they contain exactly the pending records, including the records of dead Writers.
func TestCrashWalk(t *testing.T) {
	for seed := range testkit.Walks(t, 5) {
		bubble.Test(t, func(t *testing.T) { crashWalk(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func crashWalk(t *testing.T, rng *rand.Rand) {
	dir := t.TempDir()
	for life := range 3 {
		l := startLife(t, rng, life, dir)
		for range 50 + rng.IntN(150) {
			imageAround(t, l.w, func() { l.step(); synctest.Wait() })
			l.check(l.w.Account())
		}
		held := heldIn(t, dir)
		switch rng.IntN(3) {
		case 0:
			killed := t.TempDir()
			if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			l.free()
			closeNow(t, l.w)
			dir = killed
		case 1:
			l.free()
			a := closeNow(t, l.w).Account
			if left, _ := os.ReadDir(dir); len(left) > 0 || a.Pending.Total() > 0 || a.Check() != nil {
				l.fatalf("left after Close: %v, %v", left, a)
			}
			for _, k := range held {
				if !l.d.settled[k] {
					l.fatalf("%v was not settled", k)
				}
			}
		case 2:
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(20))*time.Millisecond)
			r, _ := l.w.Shutdown(ctx)
			cancel()
			l.check(r.Account)
			l.free()
			synctest.Wait()
		}
	}
	held := heldIn(t, dir)
	var m memory
	closeNow(t, crashWriter(t, dir, &m, slab.Options{}))
	n := 0
	for line := range strings.Lines(m.String()) {
		life, i, err := parseKillLine(line)
		if err != nil || n == len(held) || held[n] != (walkKey{life, i}) {
			t.Fatalf("%v: %d is number %d of %v", err, i, n, held)
		}
		n++
	}
	if n != len(held) {
		t.Fatalf("%d of %d arrived", n, len(held))
	}
}

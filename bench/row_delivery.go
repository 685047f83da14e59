package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// Rows about delivery: what it adds to memory when all is well, and how
// fast a spool writes and replays beside plain files.

// aSlab is a batch of 64 KiB with records of 200 bytes.
func aSlab() *batch.Batch {
	var b batch.Builder
	rec := record(200)
	for i := range 64 << 10 / len(rec) {
		b.Append(rec, uint64(i+1), batch.Meta{Time: 1_700_000_000_000_000_000 + int64(i)*100_000})
	}
	return b.Batch(nil)
}

// counting takes everything.
type counting struct{ batches, records, bytes atomic.Uint64 }

func (c *counting) send(_ context.Context, b *batch.Batch) batch.Outcome {
	c.batches.Add(1)
	c.records.Add(uint64(b.Len()))
	c.bytes.Add(uint64(b.Bytes()))
	return batch.Outcome{}
}

// lent is a slab.Borrower that settles each lease within Borrow, and does nothing else.
type lent struct {
	*counting
	settled *settled
}

type settled struct {
	mu sync.Mutex
	n  uint64
}

func (d lent) Borrow(ctx context.Context, l *slab.Lease) error {
	d.send(ctx, l.Batch())
	d.settled.mu.Lock()
	if n := l.Batch().Len(); l.Settle(n) {
		d.settled.n += uint64(n)
	}
	d.settled.mu.Unlock()
	l.Release()
	return nil
}

func (d lent) Account(read func(batch.Account)) {
	d.settled.mu.Lock()
	defer d.settled.mu.Unlock()
	read(batch.Account{Accepted: d.settled.n, Delivered: d.settled.n})
}

func (d lent) Shutdown(context.Context) (batch.Report, error) { return batch.Report{}, nil }

func (lent) Wants() slab.Wants                            { return slab.Wants{Inline: true} }
func (lent) Held(_ [16]byte, _, _ uint64) []batch.Tickets { return nil }
func (lent) Flush(context.Context) error                  { return nil }
func (lent) Sync(context.Context) error                   { return nil }
func (lent) Drain(time.Time)                              {}

func (lent) SpillWhen(func() bool) (press func(), err error)    { return nil, errors.ErrUnsupported }
func (lent) HelpWhen(func() (drops, waits bool)) (press func()) { return nil }

// A sender is what takes records.
type sender interface {
	WriteRecord(p []byte, m batch.Meta) error
	Flush(ctx context.Context) error
	Close() error
}

// sends makes a contender that writes slabs full of records to what wrap puts around a
// destination that takes everything.
func sends(name string, kind h.Kind, note string, wrap func(*counting, *h.Env) (sender, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, New: func(env *h.Env) (*h.Subject, error) {
		dst := new(counting)
		to, err := wrap(dst, env)
		if err != nil {
			return nil, err
		}
		rec, n := record(200), aSlab().Len()
		m := batch.Meta{Time: 1_700_000_000_000_000_000}
		return &h.Subject{
			Run: func(_, ops int) { // an op is a slab
				for range ops * n {
					if err := to.WriteRecord(rec, m); err != nil {
						panic(err)
					}
				}
			},
			Tally: func() (h.Tally, error) {
				err := to.Flush(context.Background())
				return h.Tally{Records: dst.records.Load() / uint64(n), Bytes: dst.bytes.Load()}, err
			},
			Close: to.Close,
		}, nil
	}}
}

// inMemory are the slabs of both contenders.
var inMemory = slab.Options{WhenFull: slab.Block(), OnError: func(batch.Event) {}}

func bare(dst *counting, _ *h.Env) (sender, error) {
	return slab.New(lent{dst, new(settled)}, &inMemory)
}

// whole is an Output with all that it can have: handler, dead letters, a spool.
func whole(dst *counting, env *h.Env) (sender, error) {
	dir, err := os.MkdirTemp(env.Dir, "spool-*")
	if err != nil {
		return nil, err
	}
	out, err := deliver.NewOutput(deliver.SendFunc(deliver.Traits{}, dst.send), &deliver.OutputOptions{
		Slab: inMemory, SpoolDir: dir,
		Deliver: deliver.Options{Handler: deliver.JSONLines(io.Discard), DeadLetter: deliver.DeadLetters(io.Discard, "bench")},
		OnError: func(batch.Event) {},
	})
	if err != nil {
		return nil, err
	}
	return cleaned{out, dir}, nil
}

// cleaned is an Output that removes the directory of its spool.
type cleaned struct {
	*deliver.Output
	dir string
}

func (c cleaned) Close() error { return errors.Join(c.Output.Close(), os.RemoveAll(c.dir)) }

// spoolBytes is how much is written and read per sample.
const spoolBytes = 32 << 20

// spoolSample measures body, which handles slabs of in in dir.
func spoolSample(env *h.Env, body func(dir string, in *batch.Batch, slabs int) (time.Duration, error)) (*h.Sample, error) {
	dir, err := os.MkdirTemp(env.Dir, "spool-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	in := aSlab()
	slabs := spoolBytes / in.Bytes()
	if env.Quick {
		slabs = 8
	}
	took, err := body(dir, in, slabs)
	if err != nil {
		return nil, err
	}
	return &h.Sample{
		Value: took.Seconds() * 1e3, Ops: 1,
		More: map[string]float64{"MB/s": float64(slabs*in.Bytes()) / took.Seconds() / 1e6},
	}, nil
}

func spoolWrite(dir string, in *batch.Batch, slabs int) (time.Duration, error) {
	start := time.Now()
	s, err := spool.Open(dir, nil)
	if err != nil {
		return 0, err
	}
	for range slabs {
		if _, err := s.Append(in); err != nil {
			return 0, errors.Join(err, s.Close())
		}
	}
	err = s.Close()
	return time.Since(start), err
}

// spoolReplay reads, acknowledges and deletes what spoolWrite left.
func spoolReplay(dir string, in *batch.Batch, slabs int) (time.Duration, error) {
	if _, err := spoolWrite(dir, in, slabs); err != nil {
		return 0, err
	}
	s, err := spool.Open(dir, nil)
	if err != nil {
		return 0, err
	}
	dst := new(counting)
	start := time.Now()
	_, err = s.Replay(context.Background(), dst.send)
	took := time.Since(start)
	if err = errors.Join(err, s.Close()); err == nil && dst.batches.Load() != uint64(slabs) {
		err = errors.New("not everything was replayed")
	}
	return took, err
}

// plainWrite writes the same bytes to a file, a slab at a time.
func plainWrite(dir string, in *batch.Batch, slabs int) (time.Duration, error) {
	data := in.AppendTo(nil)
	start := time.Now()
	f, err := os.Create(filepath.Join(dir, "plain"))
	if err != nil {
		return 0, err
	}
	for range slabs {
		if _, err := f.Write(data); err != nil {
			return 0, errors.Join(err, f.Close())
		}
	}
	err = f.Close()
	return time.Since(start), err
}

// plainRead reads and deletes what plainWrite left.
func plainRead(dir string, in *batch.Batch, slabs int) (time.Duration, error) {
	if _, err := plainWrite(dir, in, slabs); err != nil {
		return 0, err
	}
	buf := make([]byte, in.Bytes())
	start := time.Now()
	f, err := os.Open(filepath.Join(dir, "plain"))
	if err != nil {
		return 0, err
	}
	for range slabs {
		if _, err := io.ReadFull(f, buf); err != nil {
			return 0, errors.Join(err, f.Close())
		}
	}
	err = errors.Join(f.Close(), os.Remove(f.Name()))
	return time.Since(start), err
}

func init() {
	const (
		through = "deliver.Output"
		alone   = "slabs alone"
		spooled = "spool"
		plain   = "plain file"
	)
	h.Register(h.Row{
		Name: "delivery/engine", What: "64 KiB of records of 200 B, written one by one, to a sink that takes everything; handler, dead letters and spool unused",
		Target: "≤ 2 µs and ≤ 1 allocation per 64 KiB over slabs without delivery", Reference: alone,
		Contenders: []h.Contender{
			sends(through, h.Ours, "all is well", whole),
			sends(alone, h.Reference, "", bare),
		},
		Verdict: h.Verdict(h.Difference(through, alone, 2000), h.Allocs(through, 1)),
	})
	for _, r := range []struct {
		name, what  string
		ours, other func(string, *batch.Batch, int) (time.Duration, error)
	}{
		{"spool/append", "32 MiB in slabs of 64 KiB, written and closed, no sync", spoolWrite, plainWrite},
		{"spool/replay", "32 MiB in slabs of 64 KiB, read from the page cache, acknowledged and deleted", spoolReplay, plainRead},
	} {
		h.Register(h.Row{
			Name: r.name, What: r.what, Target: "≥ 0.5 × a plain file with the same bytes", Unit: "ms", Reference: plain,
			Contenders: []h.Contender{
				{Name: spooled, Kind: h.Ours, Sample: func(env *h.Env) (*h.Sample, error) { return spoolSample(env, r.ours) }},
				{Name: plain, Kind: h.Reference, Sample: func(env *h.Env) (*h.Sample, error) { return spoolSample(env, r.other) }},
			},
			Verdict: h.Versus(spooled, plain, 2),
		})
	}
}

package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The model detects records that are lost, out of order or unexpected.
func TestModelDetectsWrongOutcomes(t *testing.T) {
	sent := func(err error) *Model {
		m := &Model{}
		m.Sent(m.Batch(10, 32, batch.Meta{}), err)
		return m
	}
	if _, err := sent(nil).Account(batch.Account{Accepted: 10, Delivered: 10}, 0); err != nil {
		t.Error(err)
	}
	if _, err := sent(ErrDown).Account(batch.Account{}, 0); err == nil {
		t.Error("ten records are nowhere, and that is fine?")
	}
	if _, err := sent(ErrDown).Account(batch.Account{}, 10); err != nil {
		t.Error(err)
	}
	if _, err := sent(nil).Account(batch.Account{}, 0); err == nil {
		t.Error("Verify accepted ten records that the sink has not received")
	}
	if _, err := sent(nil).Account(batch.Account{Accepted: 10, Delivered: 9}, 0); err == nil {
		t.Error("the sink lost one")
	}
	m := sent(nil)
	for _, got := range [][]uint64{expectTo(9), append(expectTo(10), 1), {2, 1, 3, 4, 5, 6, 7, 8, 9, 10}} {
		if m.Verify(got, 10) == nil {
			t.Errorf("%v passes", got)
		}
	}
	if err := m.Verify(append(expectTo(5), expectTo(10)...), 10); err != nil {
		t.Error(err)
	}
}

func expectTo(n uint64) (out []uint64) {
	for i := uint64(1); i <= n; i++ {
		out = append(out, i)
	}
	return out
}

func TestLastCopiesCountsDuplicates(t *testing.T) {
	last, copies := LastCopies([]uint64{1, 2, 3, 2, 3, 4})
	if !slices.Equal(last, expectTo(4)) || copies != 2 {
		t.Errorf("%v, %d copies", last, copies)
	}
}

// A Spill keeps the order and the quota. After a restart it returns unacknowledged batches again.
func TestSpillKeepsOrderAndQuota(t *testing.T) {
	s := &Spill{}
	s.Quota(25)
	m := &Model{}
	for range 5 {
		if _, err := s.Append(m.Batch(10, 32, batch.Meta{})); err != nil {
			t.Fatal(err)
		}
	}
	a := s.Account()
	if a.Check() != nil || a.Dropped[batch.Quota] != 30 || a.Pending.Spill != 20 || s.Peak() != 20 {
		t.Error(a)
	}
	b, seq, err := s.NextUpTo(0, 0)
	if err != nil || b.First() != 31 || seq != 4 {
		t.Errorf("%v: batch %d from %d", err, seq, b.First())
	}
	s.Reopen()
	if b, _, _ = s.NextUpTo(0, 0); b.First() != 31 || s.Account().Recovered != 20 {
		t.Errorf("after a restart: %d, %s", b.First(), s.Account())
	}
	if err := s.Ack(4); err != nil {
		t.Error(err)
	}
	if _, seq, _ := s.NextUpTo(0, 0); seq != 5 {
		t.Errorf("batch %d", seq)
	}
	if _, _, err := s.NextUpTo(0, 0); err != io.EOF {
		t.Error(err)
	}
}

// An AsyncSink detects callers that violate the contract.
func TestAsyncSinkFaults(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := NewAsyncSink(nil, 1, nil, time.Second)
		m := &Model{}
		b := m.Batch(1, 32, batch.Meta{})
		s.Start(t.Context(), b, func(batch.Outcome) {})
		s.Start(t.Context(), m.Batch(1, 32, batch.Meta{}), func(batch.Outcome) {})
		synctest.Wait()
		b.At(0).Data[0] = '#'
		_ = s.Most() // acquires the lock of the sink, so that the race detector permits the write
		time.Sleep(time.Minute)
		if got := s.Faults(); len(got) != 2 || s.Most() != 2 {
			t.Errorf("faults %q, %d at once", got, s.Most())
		}
	})
}

// A connection is reset after exactly the given number of bytes.
func TestNetworkFailsAtExactByte(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n Network
		if _, err := n.Dial(t.Context(), "tcp", "a"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
		p := n.Listen("a", func(i int) Behaviour { return Behaviour{Limit: 5 * (1 + i), Chunk: 2} })
		for i := range 2 {
			c, err := n.Dial(t.Context(), "tcp", "a")
			if err != nil {
				t.Fatal(err)
			}
			if k, err := c.Write(make([]byte, 100)); k != 5*(1+i) || err == nil {
				t.Errorf("wrote %d bytes, %v", k, err)
			}
			c.Close()
		}
		p.Close()
		p.Close()
		if got := p.Got(); p.Conns() != 2 || n.Dials() != 3 || len(got[0]) != 5 || len(got[1]) != 10 {
			t.Errorf("%d connections of %d, got %q", p.Conns(), n.Dials(), got)
		}
	})
}

func TestFaultyFollowsPlan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		faults := []Fault{
			{}, {Accepted: 3, Err: syscall.EPIPE}, {Drip: time.Second}, {Stall: release}, {Stall: release}, {Accepted: 1, Reset: true},
		}
		client, server := net.Pipe()
		c := Faulty(client, func(i int, _ []byte) Fault { return faults[i] })
		var got []byte
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, _ = io.ReadAll(server)
		}()
		write := func(want int, wantErr error, took time.Duration) {
			t.Helper()
			began := time.Now()
			n, err := c.Write([]byte("hello"))
			if n != want || !errors.Is(err, wantErr) || time.Since(began) != took {
				t.Errorf("%d, %v after %s, want %d, %v after %s", n, err, time.Since(began), want, wantErr, took)
			}
		}
		write(5, nil, 0)
		write(3, syscall.EPIPE, 0)
		write(5, nil, 5*time.Second)
		_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		write(0, context.DeadlineExceeded, 2*time.Second)
		_ = c.SetWriteDeadline(time.Time{})
		time.AfterFunc(time.Hour, func() { close(release) })
		write(5, nil, time.Hour)
		write(1, syscall.ECONNRESET, 0)
		<-done
		if string(got) != "hellohelhellohelloh" {
			t.Errorf("got %q", got)
		}
	})
}

// FOREBAY_TORTURE multiplies the number of cases up to a limit. Walks start at FOREBAY_SEEDS, and
// FOREBAY_SEED selects a single one.
func TestBudgets(t *testing.T) {
	for _, tt := range []struct {
		torture       string
		n, most, want int
	}{
		{"", 5, 100, 5}, {"1", 5, 100, 5}, {"3", 5, 100, 15}, {"30", 5, 100, 100}, {"2", 5, 3, 5}, {"2", 5, math.MaxInt, 10}, {"9999999999999999", 5000, math.MaxInt, math.MaxInt},
	} {
		t.Setenv("FOREBAY_TORTURE", tt.torture)
		if got := Rounds(t, tt.n, tt.most); got != tt.want {
			t.Errorf("%+v: got %d", tt, got)
		}
	}
	t.Setenv("FOREBAY_TORTURE", "2")
	t.Setenv("FOREBAY_SEEDS", "7")
	t.Setenv("FOREBAY_SEED", "")
	if got := slices.Collect(Walks(t, 2)); !slices.Equal(got, []uint64{7, 8, 9, 10}) {
		t.Errorf("the seeds of walks are %d", got)
	}
	t.Setenv("FOREBAY_SEED", "3")
	if got := slices.Collect(Walks(t, 2)); !slices.Equal(got, []uint64{3}) {
		t.Errorf("the seeds of walks are %d", got)
	}
}

// If FOREBAY_TORTURE is 0, Walks and Rounds skip the test.
func TestFactorZeroSkipsWalks(t *testing.T) {
	t.Setenv("FOREBAY_TORTURE", "0")
	if got := Scale(5, 100); got != 5 {
		t.Errorf("Scale returns %d", got)
	}
	for name, run := range map[string]func(t *testing.T){
		"walks":  func(t *testing.T) { Walks(t, 2) },
		"rounds": func(t *testing.T) { Rounds(t, 2, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t)
			t.Error("the test is not skipped")
		})
	}
}

// The seeds of the tests that have not ended are printed shortly before the time limit of the
// process.
func TestSeedsBeforeTimeLimit(t *testing.T) {
	t.Setenv("FOREBAY_SEEDS", "7")
	t.Setenv("FOREBAY_SEED", "")
	t.Setenv("FOREBAY_TORTURE", "")
	const hangs = "FOREBAY_HANGS"
	if os.Getenv(hangs) != "" {
		Seed(t)
		for seed := range Walks(t, 5) {
			if seed == 9 {
				select {}
			}
		}
	}
	child := exec.Command(os.Args[0], "-test.run=^TestSeedsBeforeTimeLimit$", "-test.timeout=200ms")
	child.Env = append(os.Environ(), hangs+"=yes")
	out, err := child.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "TestSeedsBeforeTimeLimit is close to the time limit; to repeat: FOREBAY_SEED=7\nTestSeedsBeforeTimeLimit is close to the time limit; to repeat: FOREBAY_SEED=9\npanic: test timed out") {
		t.Errorf("%v: %s", err, out)
	}
}

// recorded is a testing.TB that records failures instead of failing the test.
type recorded struct {
	testing.TB
	failed  bool
	log     []any
	cleanup []func()
}

func (r *recorded) Failed() bool     { return r.failed }
func (r *recorded) Log(args ...any)  { r.log = append(r.log, args...) }
func (r *recorded) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *recorded) end(t *testing.T) string {
	t.Helper()
	for _, f := range r.cleanup {
		f()
	}
	return fmt.Sprint(r.log...)
}

// Walks ends after the first walk that fails, and prints its seed.
func TestWalksPrintTheSeedThatFailed(t *testing.T) {
	t.Setenv("FOREBAY_SEEDS", "7")
	t.Setenv("FOREBAY_SEED", "")
	t.Setenv("FOREBAY_TORTURE", "")
	r := &recorded{TB: t}
	for seed := range Walks(r, 5) {
		r.failed = seed == 9
		if seed > 9 {
			t.Errorf("seed %d runs after a failure", seed)
		}
	}
	if got := r.end(t); got != "to repeat: FOREBAY_SEED=9" {
		t.Errorf("got %q", got)
	}
	r = &recorded{TB: t}
	for range Walks(r, 5) {
	}
	r.failed = true // as if a check after all walks had failed
	if got := r.end(t); got != "to repeat: FOREBAY_SEEDS=7" {
		t.Errorf("got %q", got)
	}
}

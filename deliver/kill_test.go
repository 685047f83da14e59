//go:build unix

package deliver_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/spool"
)

// A process that is killed at any moment with the spill in use loses nothing that
// a Send had returned from: it is delivered at least once by the processes after
// it, and the last copies are in order.
func TestKill(t *testing.T) {
	if dir := os.Getenv("FOREBAY_KILL_DIR"); dir != "" {
		killChild(t, dir)
		return
	}
	rng := testkit.Rand(testkit.Seed(t))
	dir := t.TempDir()
	returned := uint64(0)
	next := uint64(1)
	rounds := testkit.Rounds(20, 5000)
	for round := range rounds + 1 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), "FOREBAY_KILL_DIR="+dir, fmt.Sprintf("FOREBAY_KILL_NEXT=%d", next))
		if round == rounds {
			cmd.Env = append(cmd.Env, "FOREBAY_KILL_LAST=1")
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := 1 + uint64(rng.IntN(300))
		lines := uint64(0)
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if number, ok := strings.CutPrefix(sc.Text(), "returned "); ok {
				n, err := strconv.ParseUint(number, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				returned, next = n, n+1000 // what was under way gets no number twice
				if lines++; lines == kill && round < rounds {
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
					_ = cmd.Process.Kill()
				}
			}
		}
		err = cmd.Wait()
		cancel()
		if round == rounds && err != nil {
			t.Fatalf("the last process: %v", err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "delivered"))
	if err != nil {
		t.Fatal(err)
	}
	promised, err := os.ReadFile(filepath.Join(dir, "promised"))
	if err != nil {
		t.Fatal(err)
	}
	got := numbers(t, text)
	last, copies := testkit.LastCopies(got)
	if !slices.IsSorted(last) {
		t.Error("the last copies are not in order")
	}
	arrived := make(map[uint64]bool, len(last))
	for _, n := range last {
		arrived[n] = true
	}
	want := numbers(t, promised)
	for _, n := range want {
		if !arrived[n] {
			t.Fatalf("record %d was lost, of %d", n, len(want))
		}
	}
	t.Logf("%d processes, %d records returned, %d arrived, %d copies", rounds+1, len(want), len(last), copies)
	if len(want) < rounds*100 || returned == 0 {
		t.Errorf("only %d records were sent", len(want))
	}
}

// numbers reads lines of numbers; a last line that is torn is left out.
func numbers(t *testing.T, text []byte) (out []uint64) {
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		n, err := strconv.ParseUint(line[:len(line)-1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// killChild is the process that is killed: it sends batches of ten to a
// destination that is mostly down, and notes in a file what a Send has returned
// from.
func killChild(t *testing.T, dir string) {
	store, err := spool.Open(filepath.Join(dir, "spool"), &spool.Options{SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	delivered, promised := open("delivered"), open("promised")
	lastRun := os.Getenv("FOREBAY_KILL_LAST") != ""
	calls := 0
	sink := batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
		if calls++; !lastRun && calls%7 != 0 {
			return testkit.ErrDown
		}
		var buf []byte
		for _, rec := range b.All() {
			buf = append(buf, rec.Data...)
		}
		_, err := delivered.Write(buf) // one write: a kill does not tear it
		return err
	})
	// Every other process puts batches aside while they are being sent, too.
	full := os.Getpid()%2 == 0
	e, err := deliver.New(sink, &deliver.Options{
		Spill: store, SpillWhenFull: full, OnError: func(batch.Event) {},
		Retry:   &deliver.RetryOptions{Min: 10 * time.Microsecond, Max: 100 * time.Microsecond, Budget: deliver.NewBudget(1, 1e6)},
		Breaker: &deliver.BreakerOptions{Failures: 2, OpenMin: time.Microsecond, OpenMax: 50 * time.Microsecond, Successes: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if asked := 0; full {
		if _, err := e.SpillWhen(func() bool { asked++; return asked%3 == 0 }); err != nil {
			t.Fatal(err)
		}
	}
	if lastRun {
		time.Sleep(10 * time.Millisecond)
		for e.Account().Pending.Total() > 0 {
			time.Sleep(time.Millisecond)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	n, err := strconv.ParseUint(os.Getenv("FOREBAY_KILL_NEXT"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		var build batch.Builder
		var text []byte
		for range 10 {
			line := fmt.Appendf(nil, "%d\n", n)
			text = append(text, line...)
			build.Append(line, n, batch.Meta{})
			n++
		}
		if err := e.Send(t.Context(), build.Batch(nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := promised.Write(text); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("returned %d\n", n-1)
	}
	time.Sleep(time.Minute) // to be killed
}

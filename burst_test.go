package forebay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
)

// The number of records omitted at the end of a burst is logged after the burst has ended, and not
// before.
func TestOmittedRecordsAreReportedAfterBurst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var w lines
		r := newRouter(t, Sample(slog.LevelInfo, 2, 0), Route(plain(), Writer(&w, Direct())))
		log := r.Logger()
		last := func(want string, n int) {
			t.Helper()
			all := w.all()
			if len(all) != n || n > 0 && !strings.Contains(all[n-1], want) {
				t.Fatalf("%q, want %d with %s", all, n, want)
			}
			w.reset()
		}
		db := log.Named("db").With(slog.Int("request", 4711))
		for range 5 {
			db.Info("x")
		}
		last(`"msg":"x"`, 2)
		time.Sleep(2*burstTick - time.Millisecond)
		if w.len() != 0 {
			t.Errorf("early: %q", w.all())
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		last(`"level":"INFO","msg":"x","logger":"db","repeated":3}`, 1)
		time.Sleep(time.Minute)
		last("", 0)
		db.Info("x") // the number has already been logged
		last(`"msg":"x","request":4711,"logger":"db"}`, 1)

		// During a burst, the next logged record has the number of omitted records.
		time.Sleep(time.Minute)
		for range 50 {
			log.Info("y")
			time.Sleep(100 * time.Millisecond)
		}
		for i, line := range w.all() {
			if i > 1 && i%2 == 0 != strings.Contains(line, `"repeated":8`) {
				t.Errorf("%d: %s", i, line)
			}
		}
		last("", 10)

		// Flush and Close log the number without waiting for the end of the burst.
		for range 4 {
			log.Info("z")
		}
		if err := r.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if all := w.all(); len(all) != 4 || !strings.Contains(all[0]+all[1]+all[2]+all[3], `"msg":"z","repeated":2}`) {
			t.Errorf("%q", all)
		}
		w.reset()
		for range 4 {
			log.Info("end")
		}
		if _, err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		last(`"msg":"end","repeated":2}`, 3)
		time.Sleep(time.Minute)
		last("", 0)
	})
}

// The record that reports a burst is logged only if the level set for the name of its logger allows
// it.
func TestBurstReportObeysLevelOfName(t *testing.T) {
	var w lines
	r := newRouter(t, Sample(slog.LevelInfo, 1, 0), Route(plain(), Writer(&w, Direct())))
	for range 3 {
		r.Logger().Named("db").Info("x")
	}
	r.SetLevel("db", slog.LevelError)
	if _, err := r.Close(t.Context()); err != nil || w.len() != 1 {
		t.Errorf("%q, %v", w.all(), err)
	}
}

// If the destination hangs, the record that reports a burst delays neither Flush nor Close, and
// blocks only one goroutine.
func TestBurstAtHangingDestinationDelaysNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		dest := deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
			<-hang
			return batch.FailedOutcome(errors.New("hung"))
		})
		log, err := New(quiet(), Sample(slog.LevelInfo, 300, 0), To(dest, Buffer(2<<13), WhenFull("block")))
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for i := range 400 {
			callers.Go(func() { log.Info("x", slog.String("pad", strings.Repeat("x", 100+i))) })
		}
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_ = log.Router().Flush(ctx)
		if d := time.Since(begun); d > time.Second {
			t.Errorf("Flush took %v", d)
		}
		begun = time.Now()
		_, _ = log.Router().Close(ctx)
		if d := time.Since(begun); d > time.Second {
			t.Errorf("Close took %v", d)
		}
		close(hang)
		callers.Wait()
	})
}

var repeatedIn = regexp.MustCompile(`"repeated":(\d+)`)

// The numbers reported for bursts add up to the number of omitted records, even if messages share a
// slot of the sampler.
func TestReportedNumbersOfBurstsAddUp(t *testing.T) {
	var w lines
	r := newRouter(t, Sample(slog.LevelInfo, 1, 7), Route(plain(), Writer(&w, Direct())))
	var callers sync.WaitGroup
	for g := range 4 {
		callers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 4000 {
				r.Logger().Info(fmt.Sprintf("message %d", rng.IntN(2000)))
				if i%1000 == 0 {
					_ = r.Flush(t.Context())
				}
			}
		})
	}
	callers.Wait()
	if _, err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	reported := uint64(0)
	for _, line := range w.all() {
		if m := repeatedIn.FindStringSubmatch(line); m != nil {
			n, _ := strconv.ParseUint(m[1], 10, 64)
			reported += n
		}
	}
	if omitted := r.Stats().Outputs[0].Dropped[batch.Sampled]; reported != omitted || omitted == 0 {
		t.Errorf("%d omitted records reported, want %d", reported, omitted)
	}
}

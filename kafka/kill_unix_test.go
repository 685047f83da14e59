//go:build linux || darwin

package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
)

// Producers with crash-safe memory are killed while brokers fail. After duplicates are removed,
// every record whose log call has returned is present once, and the records of each key are in
// order.
func TestKilledProducersLoseNothing(t *testing.T) {
	if brokers := os.Getenv("FOREBAY_KAFKA"); brokers != "" {
		produce(brokers)
		return
	}
	rng := testkit.Rand(testkit.Seed(t))
	c := newCluster(t)
	dir, err := testkit.InMemory(t)
	if err != nil {
		dir = t.TempDir()
	}
	progress := t.TempDir() + "/calls"
	for range testkit.Rounds(t, 20, 200) {
		if rng.IntN(3) == 0 {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: faults[rng.IntN(7)], Count: 1 + rng.IntN(3)})
		}
		child := testkit.NewChild("^TestKilledProducersLoseNothing$", "FOREBAY_KAFKA="+strings.Join(c.ListenAddrs(), ","), "FOREBAY_SAFE="+dir, "FOREBAY_CALLS="+progress)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		enough := size(progress) + 1 + rng.Int64N(3000)
		for began := time.Now(); time.Since(began) < 10*time.Second && size(progress) < enough; {
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(time.Duration(rng.IntN(80)) * time.Millisecond)
		child.Process.Kill()
		if err := child.Wait(); err == nil || child.Failed() {
			t.Fatalf("%v: %s", err, &child.Said)
		}
	}
	returned, begun := calls(progress)
	log, err := forebay.New(crashSafeOutput(strings.Join(c.ListenAddrs(), ","), dir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if rep, err := log.Router().Close(ctx); err != nil {
		t.Fatalf("%v: %+v", err, rep)
	}
	all := consume(t, c, "logs")
	first, duplicates := removeDuplicates(t, all)
	t.Logf("%d kills, %d records, %d duplicates", testkit.Scale(20, 200), len(returned), duplicates)
	next, last := map[string]int{}, 0
	seen := map[int]bool{}
	for _, r := range first {
		var k string
		var i int
		if at := strings.Index(string(r.Value), `"key":"`); at > 0 {
			fmt.Sscanf(strings.NewReplacer(`"`, " ", ",", " ", ":", " ", "}", " ").Replace(string(r.Value[at:])), " key   %s  n  %d", &k, &i)
		}
		if seen[i] {
			t.Fatalf("record %d arrived twice: %s", i, r.Value)
		}
		if seen[i] = true; i <= next[k] {
			t.Fatalf("key %s: record %d arrived after %d", k, i, next[k])
		}
		next[k], last = i, max(last, i)
	}
	missing := 0
	for _, i := range returned {
		if !seen[i] {
			missing++
		}
	}
	if missing > 0 || last > begun {
		t.Errorf("%d of %d records are missing; the last is %d of %d", missing, len(returned), last, begun)
	}
}

// calls returns the records whose log calls have returned, and the last record whose log call has
// begun.
func calls(file string) (returned []int, begun int) {
	b, _ := os.ReadFile(file)
	lines := strings.Split(string(b), "\n")
	for _, l := range lines[:max(0, len(lines)-1)] {
		if n, err := strconv.Atoi(strings.TrimPrefix(l, "+")); err == nil && strings.HasPrefix(l, "+") {
			begun = n
		} else if err == nil {
			returned = append(returned, n)
		}
	}
	return returned, begun
}

func size(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

func crashSafeOutput(brokers, dir string) forebay.OutputSpec {
	return To("kafka://"+brokers+"/logs?key={key}&timeout=500ms&request-timeout=200ms",
		forebay.CrashSafe(dir), forebay.WhenFull("block"), forebay.Delivery(func(o *deliver.OutputOptions) {
			o.Slab.FlushInterval = 2 * time.Millisecond
			o.Deliver.Retry = &deliver.RetryOptions{Min: time.Millisecond, Max: 20 * time.Millisecond, FatalDelay: 20 * time.Millisecond}
			o.Deliver.Breaker = &deliver.BreakerOptions{OpenMin: 5 * time.Millisecond, OpenMax: 20 * time.Millisecond, FatalDelay: 20 * time.Millisecond}
		}))
}

// produce is the child process. It logs records until the parent kills it.
func produce(brokers string) {
	f, err := os.OpenFile(os.Getenv("FOREBAY_CALLS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	testkit.Must(err)
	_, n := calls(f.Name())
	log, err := forebay.New(crashSafeOutput(brokers, os.Getenv("FOREBAY_SAFE")))
	testkit.Must(err)
	for {
		n++
		fmt.Fprintf(f, "+%d\n", n)
		log.Info("m", slog.String("key", fmt.Sprintf("k%d", n%5)), slog.Int("n", n))
		fmt.Fprintf(f, "%d\n", n)
		if n%50 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

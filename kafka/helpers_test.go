package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCluster starts a fake cluster of two brokers with the topic logs of four partitions.
func newCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(4, "logs")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// fastConfig returns a Config with short timeouts.
func fastConfig(c *kfake.Cluster, topic string) Config {
	return Config{
		Brokers: c.ListenAddrs(), Topic: topic, Timeout: 400 * time.Millisecond,
		RequestTimeout: 200 * time.Millisecond, DialTimeout: 5 * time.Second,
	}
}

// deadLetters collects events and dead letters.
type deadLetters struct {
	testkit.Events
	records []string
}

func (l *deadLetters) Handle(_ error, b *batch.Batch) batch.Outcome {
	for _, rec := range b.All() {
		l.records = append(l.records, strings.TrimSpace(string(rec.Data)))
	}
	return batch.Outcome{}
}

// An output is an output under test. It collects its events and dead letters.
type output struct {
	*deliver.Output
	d     *Driver
	seen  chan batch.Event
	dead  deadLetters
	stats func() Stats
}

// begin returns an output with short delays between attempts. set can change the options.
func begin(t testing.TB, conf Config, set func(*deliver.OutputOptions)) *output {
	t.Helper()
	d, err := New(conf)
	if err != nil {
		t.Fatal(err)
	}
	o := &output{d: d, seen: make(chan batch.Event, 1000), stats: d.Stats}
	opts := deliver.OutputOptions{
		Name: "kafka", Codec: encode.JSON(nil).Codec(), BufferBytes: 1 << 20,
		OnError: func(e batch.Event) { o.dead.Add(e); o.seen <- e },
		Deliver: deliver.Options{
			Retry:   &deliver.RetryOptions{Min: time.Millisecond, Max: 20 * time.Millisecond, FatalDelay: 20 * time.Millisecond},
			Breaker: &deliver.BreakerOptions{OpenMin: 5 * time.Millisecond, OpenMax: 20 * time.Millisecond, FatalDelay: 20 * time.Millisecond},
			DeadLetter: deliver.ErrorHandlerFunc(func(err error, b *batch.Batch) batch.Outcome {
				return o.dead.Handle(err, b)
			}),
		},
		CloseTimeout: 20 * time.Second,
	}
	opts.Slab.FlushInterval = time.Millisecond
	if set != nil {
		set(&opts)
	}
	if o.Output, err = deliver.NewOutput(d, &opts); err != nil {
		t.Fatal(err)
	}
	return o
}

// line returns a record with a key and a number.
func line(key string, n int) string {
	return fmt.Sprintf(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"m","key":%q,"n":%d}`+"\n", key, n)
}

func (o *output) write(t testing.TB, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if _, err := o.Write([]byte(l)); err != nil {
			t.Error(err)
		}
	}
}

// await waits for an event with the operation op whose text contains text.
func (o *output) await(t testing.TB, op, text string) batch.Event {
	t.Helper()
	var all []string
	for timeout := time.After(20 * time.Second); ; {
		select {
		case e := <-o.seen:
			if e.Op == op && strings.Contains(e.String(), text) {
				return e
			}
			all = append(all, e.String())
		case <-timeout:
			t.Fatalf("no event %s with %q; got %q", op, text, all)
		}
	}
}

// finish closes the output and checks that all records are delivered, except the given number of
// dropped ones.
func (o *output) finish(t testing.TB, dropped uint64) batch.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	report, err := o.Shutdown(ctx)
	if err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if a := report.Account; a.Delivered+dropped != a.Accepted+a.Recovered {
		t.Errorf("%v, want %d dropped", a, dropped)
	}
	return report
}

// consume returns all records of topics. The records of a partition are in order.
func consume(t testing.TB, c *kfake.Cluster, topics ...string) []*kgo.Record {
	t.Helper()
	var all []*kgo.Record
	var most int64
	for _, topic := range topics {
		for _, p := range c.PartitionInfos(topic) {
			most += p.HighWatermark
		}
	}
	if most == 0 {
		return nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topics...), kgo.DisableClientMetrics(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for int64(len(all)) < most {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d of %d records: %v", len(all), most, err)
		}
		f.EachRecord(func(r *kgo.Record) { all = append(all, r) })
	}
	return all
}

// removeDuplicates removes duplicates by forebay-id, like a consumer, and returns their number.
func removeDuplicates(t testing.TB, all []*kgo.Record) (first []*kgo.Record, duplicates int) {
	t.Helper()
	w := dedup.New(nil)
	for _, r := range all {
		id, err := dedup.Parse([]byte(headerOf(r, dedup.Header)))
		if err != nil {
			t.Fatalf("%q: %v", r.Value, err)
		}
		if w.First(id) {
			first = append(first, r)
		}
	}
	return first, int(w.Stats().Twice)
}

func headerOf(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// wantAll checks that first contains each line once, and that the lines of each key are in order.
func wantAll(t testing.TB, first []*kgo.Record, lines []string) {
	t.Helper()
	got := make([]string, len(first))
	for i, r := range first {
		got[i] = string(r.Value)
	}
	keyOf := func(s string) string {
		_, k, _ := strings.Cut(s, `"key":"`)
		k, _, _ = strings.Cut(k, `"`)
		return k
	}
	byKey := func(all []string) map[string][]string {
		m := map[string][]string{}
		for _, s := range all {
			s = strings.TrimSuffix(s, "\n")
			m[keyOf(s)] = append(m[keyOf(s)], s)
		}
		return m
	}
	g, w := byKey(got), byKey(lines)
	for k := range w {
		if !slices.Equal(g[k], w[k]) {
			i := 0
			for i < min(len(g[k]), len(w[k])) && g[k][i] == w[k][i] {
				i++
			}
			t.Errorf("key %q: %d records, want %d; they differ at %d: got %.200q", k, len(g[k]), len(w[k]), i, g[k][i:min(i+3, len(g[k]))])
		}
	}
	if len(got) != len(lines) {
		t.Errorf("%d records, want %d", len(got), len(lines))
	}
}

// lines returns n records. The keys repeat in a fixed order.
func lines(keys, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = line(fmt.Sprintf("k%d", i%keys), i)
	}
	return all
}

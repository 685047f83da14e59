package kafka

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// answers makes c answer every produce request with the given codes, one for each partition in
// order. If there are more partitions than codes, the last code is repeated. restore makes c answer
// normally again.
func answers(c *kfake.Cluster, codes ...*kerr.Error) (restore func()) {
	var mu sync.Mutex
	over := false
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return nil, nil, false
		}
		c.KeepControl()
		resp := refuseAll(r.(*kmsg.ProduceRequest), codes[len(codes)-1], "")
		for i, e := range codes {
			if parts := resp.Topics[0].Partitions; i < len(parts) {
				parts[i].ErrorCode = e.Code
			}
		}
		return resp, nil, true
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// severalPartitions returns a cluster of one broker, a Config, and lines that go to all four partitions.
func severalPartitions(t *testing.T) (*kfake.Cluster, Config, []string) {
	c := newCluster(t, kfake.NumBrokers(1))
	conf := fastConfig(c, "logs")
	conf.Key = "{key}"
	return c, conf, lines(20, 20)
}

// oneBatch sets a long flush interval, so that all records of a test are in one batch.
func oneBatch(o *deliver.OutputOptions) { o.Slab.FlushInterval = time.Hour }

// If a session has two reasons to end, the first one counts, whether or not it is the one that
// holds all records.
func TestSessionEndsForTheFirstReason(t *testing.T) {
	for _, tc := range []struct {
		first, then *kerr.Error
		op          string
	}{
		{kerr.TopicAuthorizationFailed, kerr.OutOfOrderSequenceNumber, "hold"},
		{kerr.OutOfOrderSequenceNumber, kerr.TopicAuthorizationFailed, "send"},
	} {
		c, conf, want := severalPartitions(t)
		restore := answers(c, tc.first, tc.then)
		o := begin(t, conf, oneBatch)
		o.write(t, want...)
		flushed := make(chan error)
		go func() { flushed <- o.Flush(t.Context()) }()
		e := o.await(t, tc.op, tc.first.Message)
		restore()
		<-flushed
		if strings.Contains(e.String(), tc.then.Message) {
			t.Error(e)
		}
		o.finish(t, 0)
		first, _ := removeDuplicates(t, consume(t, c, "logs"))
		wantAll(t, first, want)
	}
}

// If a broker may have stored the unanswered records of one partition of a batch, the outcome of
// the batch is unknown.
func TestUnansweredPartitionMakesTheBatchUnknown(t *testing.T) {
	sure, unsure := kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend
	for _, codes := range [][]*kerr.Error{{sure, unsure}, {unsure, sure}, {sure, sure}} {
		c, conf, want := severalPartitions(t)
		conf.Timeout = 50 * time.Millisecond
		restore := answers(c, codes...)
		o := begin(t, conf, oneBatch)
		o.write(t, want...)
		flushed := make(chan error)
		go func() { flushed <- o.Flush(t.Context()) }()
		e := o.await(t, "send", "not stored for 50ms")
		restore()
		<-flushed
		if errors.Is(e.Err, batch.ErrUnanswered) != (codes[0] == unsure || codes[1] == unsure) {
			t.Errorf("%v: %v", codes, e)
		}
		o.finish(t, 0)
	}
}

// If a record may be stored but is refused each time it is sent again, the session ends, because
// its sequence number cannot be reused. In the next session, the record becomes a dead letter.
func TestRecordRefusedAfterNoAnswerIsCondemnedInTheNextSession(t *testing.T) {
	c := newCluster(t)
	conf := fastConfig(c, "logs")
	conf.BatchBytes, conf.Compression = 1<<10, "none"
	o := begin(t, conf, nil)
	want := lines(1, 4)
	for i := range want { // large, so that each is in a separate Kafka batch
		want[i] = strings.Replace(want[i], `"m"`, `"`+strings.Repeat("m", 600)+`"`, 1)
	}
	o.write(t, want[0])
	if err := o.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(want[1], "mmm", "poison", 1)
	var mu sync.Mutex
	countingDriver := 0
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		c.KeepControl()
		resp, found := refuseBad(r.(*kmsg.ProduceRequest), "poison", kerr.InvalidRecord, false)
		if countingDriver++; found && countingDriver == 1 {
			resp = refuseAll(r.(*kmsg.ProduceRequest), kerr.RequestTimedOut, "")
		}
		return resp, nil, found
	})
	o.write(t, bad)
	o.write(t, want[2:]...)
	o.finish(t, 1)
	first, _ := removeDuplicates(t, consume(t, c, "logs"))
	wantAll(t, first, append(want[:1:1], want[2:]...))
	if s := o.stats(); len(o.dead.records) != 1 || s.Sessions != 2 {
		t.Errorf("%q, %+v", o.dead.records, s)
	}
}

// A Kafka batch has at most BatchBytes bytes, and as many records as fit. A record larger than
// BatchBytes gets a separate batch.
func TestBatchesAreFilledUpToBatchBytes(t *testing.T) {
	sent := func(bytes int, recs ...string) (batches [][]string, size int) {
		t.Helper()
		c := newCluster(t, kfake.SeedTopics(1, "one"))
		var mu sync.Mutex
		c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			mu.Lock()
			defer mu.Unlock()
			var b kmsg.RecordBatch
			data := r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records
			if err := b.ReadFrom(data); err != nil {
				t.Error(err)
			}
			recs, _ := kfake.BatchRecords(b)
			var one []string
			for _, rec := range recs {
				one = append(one, string(rec.Value))
			}
			batches, size = append(batches, one), len(data)
			return nil, nil, false
		})
		conf := fastConfig(c, "one")
		conf.BatchBytes, conf.Compression = bytes, "none"
		o := begin(t, conf, oneBatch)
		for _, rec := range recs {
			if err := o.WriteRecord([]byte(rec), batch.Meta{Time: 1_700_000_000_000_000_000}); err != nil {
				t.Fatal(err)
			}
		}
		o.finish(t, 0)
		mu.Lock()
		defer mu.Unlock()
		return batches, size
	}
	const n = 20
	short := strings.Split(strings.Repeat("{}\n,", n), ",")[:n]
	_, size := sent(1<<16, short[1:]...)
	last := recordSize(nil, []byte("{}"), []header{{"forebay-id", make([]byte, 35)}, {"level", []byte("info")}})
	for over, want := range map[int]int{0: 1, -1: 2} {
		if got, _ := sent(size+last+over, short...); len(got) != want {
			t.Errorf("room for %d bytes more: %d batches, want %d", over, len(got), want)
		}
	}
	large := fmt.Sprintf(`{"a":%q}`, strings.Repeat("a", 2000))
	if got, _ := sent(1<<10, large+"\n"); len(got) != 1 || len(got[0]) != 1 || got[0][0] != large {
		t.Errorf("a large record is not alone in its batch: %q", got)
	}
}

package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay/internal/testkit"
)

// faults are error codes of brokers for TestWalk. None of them may cause a dead letter.
var faults = []*kerr.Error{
	kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut,
	kerr.KafkaStorageError, kerr.UnknownServerError, kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch,
	kerr.TopicAuthorizationFailed, kerr.PolicyViolation, kerr.UnknownTopicOrPartition, kerr.ThrottlingQuotaExceeded,
	kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.InvalidRequest,
}

// halving are the faults after which a session halves a Kafka batch.
var halving = faults[len(faults)-3:]

// Brokers fail at random. After duplicates are removed, every record is present once, and the
// records of each key are in order.
func TestWalk(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(t, 4, 200) {
		walk(t, testkit.Rand(rng.Uint64()))
	}
}

func walk(t *testing.T, rng *rand.Rand) {
	c := newCluster(t, kfake.NumBrokers(1+rng.IntN(3)))
	defer c.Close()
	conf := fastConfig(c, "logs")
	conf.Timeout, conf.RequestTimeout = 150*time.Millisecond, 100*time.Millisecond
	conf.Window = 1 + rng.IntN(6)
	conf.BatchBytes = 1<<10 + rng.IntN(16<<10)
	conf.Compression = []string{"none", "lz4", "zstd"}[rng.IntN(3)]
	keys := 1
	if rng.IntN(2) == 0 {
		conf.Key, keys = "{key}", 1+rng.IntN(12)
	}
	o := begin(t, conf, nil)
	var want []string
	for k := range keys { // the order may change in a partition that has accepted no record
		want = append(want, line(fmt.Sprintf("k%d", k), k))
	}
	o.write(t, want...)
	if err := o.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var hooks []*kfake.FaultHandle
	for range 40 {
		switch rng.IntN(7) {
		case 0:
			f := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: faults[rng.IntN(len(faults))], Count: 1 + rng.IntN(4)}
			if rng.IntN(2) == 0 {
				f.Err = halving[rng.IntN(len(halving))]
			}
			if rng.IntN(2) == 0 {
				f.Partitions = []int32{int32(rng.IntN(4))}
			}
			hooks = append(hooks, c.Fault(f))
		case 1:
			hooks = append(hooks, c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata, kmsg.InitProducerID}, Err: faults[rng.IntN(len(faults))]}))
		case 2:
			c.ShufflePartitionLeaders()
		case 3: // no answer: the broker closes the connection or hangs
			gone := errors.New("gone")
			if rng.IntN(4) == 0 {
				gone = nil
			}
			c.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) { return nil, gone, true })
		}
		for range rng.IntN(60) {
			l := line(fmt.Sprintf("k%d", rng.IntN(keys)), len(want))
			want = append(want, l)
			o.write(t, l)
		}
		if rng.IntN(3) == 0 {
			time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
		}
	}
	o.finish(t, 0)
	for _, h := range hooks {
		h.Remove() // the faults do not apply to the consumer
	}
	all := consume(t, c, "logs")
	first, _ := removeDuplicates(t, all)
	// A fetch returns partitions in any order. All records of a key are in the same partition, so a
	// stable sort by partition preserves their order.
	slices.SortStableFunc(first, func(a, b *kgo.Record) int { return int(a.Partition - b.Partition) })
	wantAll(t, first, want)
	if len(o.dead.records) > 0 {
		t.Errorf("%d valid records are dead letters", len(o.dead.records))
	}
}

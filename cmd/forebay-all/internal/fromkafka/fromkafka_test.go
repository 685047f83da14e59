package fromkafka

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/cmd/forebay-all/internal/sinktest"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 4

func fake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(partitions, "logs")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func client(t testing.TB, c *kfake.Cluster) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableClientMetrics(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// produce writes the records with the numbers n to m-1. The partitions alternate.
func produce(t testing.TB, cl *kgo.Client, n, m int) {
	t.Helper()
	var recs []*kgo.Record
	for i := n; i < m; i++ {
		recs = append(recs, &kgo.Record{Topic: "logs", Partition: int32(i % partitions), Value: fmt.Appendf(nil, `{"i":%d}`, i)})
	}
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// A run is a running Reader and its sink.
type run struct {
	*Reader
	*sinktest.Sink
	ended chan error
	once  sync.Once
}

func begin(t testing.TB, c *kfake.Cluster, set func(*Config)) *run {
	t.Helper()
	conf := Config{Kafka: kafka.Config{Brokers: c.ListenAddrs()}, Topics: []string{"logs"}, Group: "g"}
	if set != nil {
		set(&conf)
	}
	r := &run{Sink: sinktest.New(), ended: make(chan error, 1)}
	var err error
	if r.Reader, err = New(conf, r.Sink); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- r.Run() }()
	t.Cleanup(func() { r.end(t, false) })
	return r
}

// end stops the reader.
func (r *run) end(t testing.TB, delivered bool) {
	r.once.Do(func() {
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		if err := r.Reader.Close(delivered); err != nil {
			t.Error(err)
		}
	})
}

// committed returns the sum of the group's committed offsets over all partitions.
func committed(t testing.TB, cl *kgo.Client) (sum int64) {
	t.Helper()
	offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), "g")
	if err != nil {
		return 0
	}
	offsets.Each(func(o kadm.OffsetResponse) { sum += max(0, o.At) })
	return sum
}

// wantOnce checks that bodies contains each record from 0 to n-1 once. The records of each
// partition must be in order.
func wantOnce(t testing.TB, bodies []string, n int) {
	t.Helper()
	last := map[int]int{}
	seen := map[int]bool{}
	for _, b := range bodies {
		var i int
		if _, err := fmt.Sscanf(b, `{"i":%d}`, &i); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if seen[i] {
			t.Errorf("record %d arrives twice", i)
		}
		seen[i] = true
		if before, ok := last[i%partitions]; ok && before > i {
			t.Errorf("record %d arrives after %d", i, before)
		}
		last[i%partitions] = i
	}
	if len(seen) != n {
		t.Errorf("%d records, want %d", len(seen), n)
	}
}

// Offsets are committed only after the outputs have delivered or stored the records.
func TestOffsetsAreCommittedAfterDelivery(t *testing.T) {
	c := fake(t)
	cl := client(t, c)
	produce(t, cl, 0, 1000)
	r := begin(t, c, nil)
	r.Hold()
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 1000 })
	wantOnce(t, r.Bodies(), 1000)
	if n := committed(t, cl); n > 1000 || r.Commits() == 0 && n > 0 {
		t.Errorf("%d offsets are committed", n)
	}
	before := committed(t, cl)
	produce(t, cl, 1000, 1200)
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 1200 })
	if n := committed(t, cl); n != before {
		t.Errorf("%d offsets are committed, though the outputs do not have the records; it was %d", n, before)
	}
	r.Release()
	sinktest.Await(t, "the commit", func() bool { return committed(t, cl) == 1200 })

	// Close commits the last offsets if all records are delivered.
	r.Hold()
	produce(t, cl, 1200, 1300)
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 1300 })
	r.end(t, true)
	if n := committed(t, cl); n != 1300 {
		t.Errorf("%d offsets are committed at the end", n)
	}
	next := begin(t, c, nil)
	produce(t, cl, 1300, 1310)
	sinktest.Await(t, "reading", func() bool { return len(next.Bodies()) == 10 })
	if got := next.Bodies(); !slices.Contains(got, `{"i":1305}`) || slices.Contains(got, `{"i":1299}`) {
		t.Error(got)
	}
}

// If records are not delivered, the next reader reads them again.
func TestUndeliveredRecordsAreReadAgain(t *testing.T) {
	c := fake(t)
	cl := client(t, c)
	produce(t, cl, 0, 100)
	r := begin(t, c, nil)
	r.Hold()
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 100 })
	before := committed(t, cl)
	r.end(t, false)
	next := begin(t, c, nil)
	sinktest.Await(t, "reading again", func() bool { return len(next.Bodies()) == 100-int(before) })
}

// While no offsets are committed, at most maxUncommitted records are passed to the sink.
func TestUncommittedRecordsAreLimited(t *testing.T) {
	c := fake(t)
	cl := client(t, c)
	const more = 3000
	for i := 0; i < maxUncommitted+more; i += 1000 {
		produce(t, cl, i, i+1000)
	}
	r := begin(t, c, nil)
	r.Hold()
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) >= maxUncommitted })
	before := int(committed(t, cl)) // a commit may have been in progress when Hold was called
	if n := len(r.Bodies()); n > maxUncommitted+before {
		t.Errorf("%d records are put, %d of them committed", n, before)
	}
	r.Release()
	sinktest.Await(t, "the rest", func() bool { return len(r.Bodies()) == maxUncommitted+more })
	wantOnce(t, r.Bodies(), maxUncommitted+more)
	sinktest.Await(t, "the commit", func() bool { return committed(t, cl) == maxUncommitted+more })
}

// If members join and leave the group while records are read, no record is lost, and only
// uncommitted records are read again.
func TestMembersJoinAndLeaveWithoutLoss(t *testing.T) {
	c := fake(t)
	cl := client(t, c)
	produce(t, cl, 0, 4000)
	a := begin(t, c, nil)
	sinktest.Await(t, "reading", func() bool { return len(a.Bodies()) > 0 })
	b := begin(t, c, nil)
	produce(t, cl, 4000, 5000)
	sinktest.Await(t, "the second member", func() bool { // wait until the second member gets partitions
		produce(t, cl, 5000, 5004)
		return len(b.Bodies()) > 0
	})
	a.end(t, true)
	produce(t, cl, 6000, 6100)
	all := func() map[string]int {
		times := map[string]int{}
		for _, body := range slices.Concat(a.Bodies(), b.Bodies()) {
			times[body]++
		}
		return times
	}
	sinktest.Await(t, "reading all", func() bool { return len(all()) == 5104 })
	for body, n := range all() {
		var i int
		fmt.Sscanf(body, `{"i":%d}`, &i)
		if n > 1 && (i < 5000 || i >= 5004) { // the records 5000 to 5003 were produced repeatedly
			t.Fatalf("%s comes %d times, though commits were quick and no member died", body, n)
		}
	}
}

// A record gets the time, the level and the fields of the Kafka record.
func TestRecordHasFieldsOfKafka(t *testing.T) {
	c := fake(t)
	cl := client(t, c)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	recs := []*kgo.Record{
		{Topic: "logs", Key: []byte("u1"), Value: []byte("one"), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "level", Value: []byte("warn")}, {Key: "forebay-id", Value: []byte("x-1")}}},
		{Topic: "logs", Key: []byte("u1")}, // a deleted key
		{Topic: "logs", Value: []byte{}, Timestamp: at, Headers: []kgo.RecordHeader{{Key: "level", Value: []byte("info")}}},
	}
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r := begin(t, c, func(c *Config) { c.Fields = []string{"key", "partition", "offset", "forebay-id"} })
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 2 })
	got := r.Records()
	if want := (sinktest.Record{Body: "one", Attrs: "topic=logs key=u1 partition=0 offset=0 forebay-id=x-1 ", Level: "WARN", Time: at.Local()}); got[0].Body != want.Body ||
		got[0].Attrs != want.Attrs || got[0].Level != want.Level || !got[0].Time.Equal(at) {
		t.Errorf("%+v", got[0])
	}
	if got[1].Body != "" || got[1].Level != "" || got[1].Attrs != "topic=logs partition=0 offset=2 " {
		t.Errorf("%+v", got[1])
	}
	sinktest.Await(t, "the commit", func() bool { return committed(t, cl) == 3 })
}

// Only records with the forebay-id of an earlier record are skipped.
func TestDuplicatesAreSkipped(t *testing.T) {
	c := fake(t)
	cl := client(t, c)
	id := func(n uint64) []kgo.RecordHeader {
		return []kgo.RecordHeader{{Key: dedup.Header, Value: dedup.ID{Origin: [16]byte{7}, Ticket: n}.Append(nil)}}
	}
	var recs []*kgo.Record
	for _, n := range []uint64{1, 2, 2, 3, 1, 4} {
		recs = append(recs, &kgo.Record{Topic: "logs", Value: fmt.Appendf(nil, "%d", n), Headers: id(n)})
	}
	for range 2 {
		recs = append(recs, &kgo.Record{Topic: "logs", Value: []byte("no name")}, &kgo.Record{Topic: "logs", Value: []byte("x"), Headers: []kgo.RecordHeader{{Key: dedup.Header, Value: []byte("x")}}})
	}
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r := begin(t, c, func(c *Config) { c.Dedup = true })
	sinktest.Await(t, "the commit", func() bool { return committed(t, cl) == int64(len(recs)) })
	if got := strings.Join(r.Bodies(), ","); got != "1,2,3,4,no name,x,no name,x" {
		t.Error(got)
	}
	r.end(t, true)
	if !strings.Contains(r.Messages(), "duplicate records skipped: 2") {
		t.Error(r.Messages())
	}
}

// A missing topic is reported once. When it is created, it is read.
func TestMissingTopicIsReportedOnce(t *testing.T) {
	c := fake(t)
	r := begin(t, c, func(c *Config) { c.Topics = []string{"later"} })
	sinktest.Await(t, "a message", func() bool {
		return strings.Contains(r.Messages(), "cannot read topic later: there is no such topic; retrying")
	})
	cl := client(t, c)
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "later"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "later", Value: []byte("one")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 1 })
	if n := strings.Count(r.Messages(), "no such topic"); n != 1 {
		t.Errorf("it is reported %d times:\n%s", n, r.Messages())
	}
}

// If credentials are refused, the error does not contain them.
func TestRefusedCredentialsAreReportedAndHidden(t *testing.T) {
	c := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "me", "right"))
	r := begin(t, c, func(c *Config) { c.Kafka.User, c.Kafka.Password, c.Kafka.Mechanism = "me", "wr0ng-word", "plain" })
	sinktest.Await(t, "a message", func() bool { return strings.Contains(r.Messages(), "cannot reach the brokers: ") })
	if said := r.Messages(); !strings.Contains(said, "credentials") && !strings.Contains(said, "SASL") || strings.Contains(said, "wr0ng-word") {
		t.Error(said)
	}
}

// While the outputs are full, the reader stops fetching and stays in the group.
func TestFetchingStopsWhileOutputsAreFull(t *testing.T) {
	c := fake(t)
	cl := client(t, c)
	r := begin(t, c, nil)
	r.Fill()
	for i := 0; i < 20_000; i += 1000 {
		produce(t, cl, i, i+1000)
	}
	if n := len(r.Bodies()); n != 0 {
		t.Errorf("%d records are put", n)
	}
	r.Drain()
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 20_000 })
	wantOnce(t, r.Bodies(), 20_000)
}

// If the outputs are closed, Run returns.
func TestClosedOutputsEndTheReader(t *testing.T) {
	c := fake(t)
	cl := client(t, c)
	r := begin(t, c, nil)
	r.Sink.Close()
	produce(t, cl, 0, 10)
	err := <-r.ended
	if err == nil || err.Error() != "the outputs are closed" {
		t.Error(err)
	}
	r.ended <- nil
}

// Check finds errors without connecting.
func TestConfigIsCheckedWithoutConnection(t *testing.T) {
	for want, c := range map[string]Config{
		"Brokers is empty": {Topics: []string{"a"}, Group: "g"},
		"Mechanism":        {Kafka: kafka.Config{Brokers: []string{"b"}, User: "u", Password: "p", Mechanism: "magic"}, Topics: []string{"a"}, Group: "g"},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := (&Config{Kafka: kafka.Config{Brokers: []string{"b"}}, Topics: []string{"a"}, Group: "g"}).Check(); err != nil {
		t.Error(err)
	}
}

// If the outputs do not deliver, a new member gets its partitions, and reads uncommitted records
// again.
func TestNewMemberReadsUncommittedRecords(t *testing.T) {
	c := fake(t)
	cl := client(t, c)
	a := begin(t, c, nil)
	a.Hold()
	produce(t, cl, 0, 400)
	sinktest.Await(t, "reading", func() bool { return len(a.Bodies()) == 400 })
	before := committed(t, cl) // offsets that were committed before Hold
	b := begin(t, c, nil)
	sinktest.Await(t, "reading again", func() bool { return len(b.Bodies()) >= 100-int(before) && len(b.Bodies()) > 0 })
	produce(t, cl, 400, 500)
	sinktest.Await(t, "reading all", func() bool {
		seen := map[string]bool{}
		for _, body := range slices.Concat(a.Bodies(), b.Bodies()) {
			seen[body] = true
		}
		return len(seen) == 500
	})
	a.Release()
	sinktest.Await(t, "the commit", func() bool { return committed(t, cl) == 500 })
	if strings.Contains(a.Messages(), "cannot commit") {
		t.Error(a.Messages())
	}
}

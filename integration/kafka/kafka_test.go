//go:build linux

package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/kafka"
	"github.com/forebay-log/forebay/slab"
)

// An output under test, with all it says.
type output struct {
	*deliver.Output
	d    *kafka.Driver
	seen chan batch.Event

	mu   sync.Mutex
	dead []string
}

// begin makes an output to topic whose retries are quick.
func (c *cluster) begin(t *testing.T, topic string, set func(*kafka.Config)) *output {
	t.Helper()
	conf := kafka.Config{Brokers: c.addrs(), Topic: topic, Key: "{key}", Timeout: 2 * time.Second, RequestTimeout: time.Second}
	if set != nil {
		set(&conf)
	}
	d, err := kafka.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	o := &output{d: d, seen: make(chan batch.Event, 10_000)}
	opts := deliver.OutputOptions{
		Name: "kafka", Codec: encode.JSON(nil).Codec(), BufferBytes: 4 << 20,
		OnError: func(e batch.Event) { o.seen <- e },
		Slab:    slab.Options{FlushInterval: 5 * time.Millisecond, WhenFull: slab.Block()},
		Deliver: deliver.Options{
			Retry:   &deliver.RetryOptions{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond, FatalDelay: 100 * time.Millisecond},
			Breaker: &deliver.BreakerOptions{OpenMin: 20 * time.Millisecond, OpenMax: 200 * time.Millisecond, FatalDelay: 200 * time.Millisecond},
			DeadLetter: deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
				o.mu.Lock()
				defer o.mu.Unlock()
				for _, rec := range b.All() {
					o.dead = append(o.dead, strings.TrimSpace(string(rec.Data)))
				}
				return batch.Outcome{}
			}),
		},
		CloseTimeout: time.Minute,
	}
	if o.Output, err = deliver.NewOutput(d, &opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		o.Shutdown(ctx)
	})
	return o
}

// line is a record of a test.
func line(key string, n int) string {
	return fmt.Sprintf(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"m","key":%q,"n":%d}`, key, n)
}

func lines(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, line(fmt.Sprint("k", i%7), i))
	}
	return all
}

func (o *output) write(t *testing.T, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if _, err := fmt.Fprintln(o, l); err != nil {
			t.Fatal(err)
		}
	}
}

// writeAt writes lines of a time.
func (o *output) writeAt(t *testing.T, at time.Time, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if err := o.WriteRecord([]byte(l+"\n"), batch.Meta{Time: at.UnixNano()}); err != nil {
			t.Fatal(err)
		}
	}
}

// await waits for an event with op whose text has says in it.
func (o *output) await(t *testing.T, op, says string) batch.Event {
	t.Helper()
	var all []string
	for timeout := time.After(90 * time.Second); ; {
		select {
		case e := <-o.seen:
			if e.Op == op && strings.Contains(e.String(), says) {
				return e
			}
			all = append(all, e.String())
		case <-timeout:
			t.Fatalf("no event %s with %q; got %q", op, says, all)
		}
	}
}

// finish closes the output, and wants everything delivered but so many.
func (o *output) finish(t *testing.T, dropped uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	report, err := o.Shutdown(ctx)
	if err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if a := report.Account; a.Delivered+dropped != a.Accepted+a.Recovered {
		t.Errorf("%v, want %d dropped", a, dropped)
	}
	if len(o.dead) != int(dropped) {
		t.Errorf("%d dead letters, want %d: %.300q", len(o.dead), dropped, o.dead)
	}
}

// consume returns what lies in a topic, without what came twice, and how many did.
func (c *cluster) consume(t *testing.T, topic string) (first []*kgo.Record, twice int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs()...), kgo.ConsumeTopics(topic), kgo.DisableClientMetrics(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	most := int64(0)
	await(t, time.Minute, "asking for the ends", func(ctx context.Context) error {
		ends, err := c.admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		most = 0
		ends.Each(func(o kadm.ListedOffset) { most += o.Offset })
		return err
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w := dedup.New(nil)
	for n := int64(0); n < most; {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records: %v", n, most, f.Err())
		}
		f.EachRecord(func(r *kgo.Record) {
			n++
			for _, h := range r.Headers {
				if h.Key != dedup.Header {
					continue
				}
				if id, err := dedup.Parse(h.Value); err != nil {
					t.Errorf("%q: %v", r.Value, err)
				} else if w.First(id) {
					first = append(first, r)
				}
			}
		})
	}
	return first, int(w.Stats().Twice)
}

// arrived fails unless a topic holds each of the lines once, those of each key in order,
// after a consumer has dropped what came twice. It returns how many did.
func (c *cluster) arrived(t *testing.T, topic string, want []string) (twice int) {
	t.Helper()
	first, twice := c.consume(t, topic)
	keyOf := func(s string) string {
		_, k, _ := strings.Cut(s, `"key":"`)
		k, _, _ = strings.Cut(k, `"`)
		return k
	}
	got, wanted := map[string][]string{}, map[string][]string{}
	for _, r := range first {
		got[keyOf(string(r.Value))] = append(got[keyOf(string(r.Value))], string(r.Value))
	}
	for _, s := range want {
		wanted[keyOf(s)] = append(wanted[keyOf(s)], s)
	}
	for k, w := range wanted {
		if g := got[k]; !slices.Equal(g, w) {
			i := 0
			for i < min(len(g), len(w)) && g[i] == w[i] {
				i++
			}
			t.Errorf("key %q: %d records, want %d; they differ at %d: %.300q", k, len(g), len(w), i, g[i:min(i+3, len(g))])
		}
	}
	if len(first) != len(want) {
		t.Errorf("%d records, want %d", len(first), len(want))
	}
	return twice
}

// Each codec, two topics from a field: each record is there once, in order per key.
func TestDelivers(t *testing.T) {
	c := brokers(t, 1)
	for _, codec := range []string{"zstd", "lz4", "snappy", "gzip", "none"} {
		t.Run(codec, func(t *testing.T) {
			topic := c.topic(t, 4)
			o := c.begin(t, topic, func(k *kafka.Config) { k.Compression, k.BatchBytes = codec, 16<<10 })
			want := lines(0, 5000)
			o.write(t, want...)
			o.finish(t, 0)
			if twice := c.arrived(t, topic, want); twice > 0 {
				t.Errorf("%d came twice", twice)
			}
		})
	}
}

// trusted is the TLS of a client that knows the brokers' certificate.
func (c *cluster) trusted(t *testing.T) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(c.dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate")
	}
	return &tls.Config{RootCAs: pool}
}

// secure makes the Config one of TLS, with credentials if there is a mechanism.
func (c *cluster) secure(t *testing.T, k *kafka.Config, mechanism string) {
	k.TLS = c.trusted(t)
	k.Brokers = []string{fmt.Sprint("127.0.0.1:", c.brokers[0].tls)}
	if mechanism != "" {
		k.Brokers = []string{fmt.Sprint("127.0.0.1:", c.brokers[0].sasl)}
		k.User, k.Password, k.Mechanism = user, password, mechanism
	}
}

// TLS, and each mechanism of SASL over it.
func TestSecure(t *testing.T) {
	c := brokers(t, 1)
	for _, mechanism := range []string{"", "plain", "scram-sha-256", "scram-sha-512"} {
		t.Run("tls"+mechanism, func(t *testing.T) {
			topic := c.topic(t, 2)
			o := c.begin(t, topic, func(k *kafka.Config) { c.secure(t, k, mechanism) })
			want := lines(0, 100)
			o.write(t, want...)
			o.finish(t, 0)
			c.arrived(t, topic, want)
		})
	}
}

// What a broker refuses at the door is told once, without the password, and held.
func TestRefusedAtTheDoor(t *testing.T) {
	c := brokers(t, 1)
	topic := c.topic(t, 1)
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			o := c.begin(t, topic, func(k *kafka.Config) {
				c.secure(t, k, mechanism)
				k.Password = "wr0ng-" + password
			})
			o.write(t, line("k", 1))
			if e := o.await(t, "hold", "SASL_AUTHENTICATION_FAILED"); strings.Contains(e.String(), "wr0ng") {
				t.Errorf("the password is shown: %v", e)
			}
		})
	}
	for name, set := range map[string]func(*kafka.Config){
		"an unknown certificate": func(k *kafka.Config) { c.secure(t, k, ""); k.TLS.RootCAs = x509.NewCertPool() },
	} {
		t.Run(name, func(t *testing.T) {
			o := c.begin(t, topic, set)
			o.write(t, line("k", 1))
			o.await(t, "hold", "certificate")
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		o := c.begin(t, topic, func(k *kafka.Config) { k.Brokers = []string{fmt.Sprint("127.0.0.1:", c.brokers[0].tls)} })
		o.write(t, line("k", 1))
		o.await(t, "send", "speaking to a tls endpoint")
	})
	if first, _ := c.consume(t, topic); len(first) > 0 {
		t.Errorf("%d records came", len(first))
	}
}

// A user without the right to write is held until it has it.
func TestNoRights(t *testing.T) {
	c := brokers(t, 1)
	topic := c.topic(t, 2)
	acl := kadm.NewACLs().Deny("User:" + user).DenyHosts("*").Topics(topic).Operations(kadm.OpWrite).ResourcePatternType(kadm.ACLPatternLiteral)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.admin.CreateACLs(ctx, acl); err != nil {
		t.Fatal(err)
	}
	o := c.begin(t, topic, func(k *kafka.Config) { c.secure(t, k, "scram-sha-512") })
	want := lines(0, 100)
	o.write(t, want...)
	o.await(t, "hold", "TOPIC_AUTHORIZATION_FAILED")
	if _, err := c.admin.DeleteACLs(ctx, acl); err != nil {
		t.Fatal(err)
	}
	o.finish(t, 0)
	c.arrived(t, topic, want)
}

// A topic that does not exist holds its records until somebody makes it.
func TestUnknownTopic(t *testing.T) {
	c := brokers(t, 1)
	topic := strings.ToLower(t.Name())
	o := c.begin(t, topic, nil)
	want := lines(0, 100)
	o.write(t, want...)
	o.await(t, "hold", "UNKNOWN_TOPIC_OR_PARTITION")
	c.make(t, topic, 2)
	o.finish(t, 0)
	c.arrived(t, topic, want)
}

// One record that is too large is a dead letter; a batch that is too large is cut.
func TestTooLarge(t *testing.T) {
	c := brokers(t, 1)
	topic := c.topic(t, 2, "max.message.bytes", "3000")
	o := c.begin(t, topic, func(k *kafka.Config) { k.Compression = "none" })
	want := lines(0, 300)
	o.write(t, want[:150]...)
	o.write(t, `{"msg":"`+strings.Repeat("x", 5000)+`","key":"k1"}`)
	o.write(t, want[150:]...)
	o.finish(t, 1)
	c.arrived(t, topic, want)
	if s := o.d.Stats(); s.Cut == 0 || s.Refused != 1 || s.Sessions != 1 {
		t.Errorf("%+v", s)
	}
}

// A record from the future is refused by name, and alone a dead letter.
func TestFromTheFuture(t *testing.T) {
	c := brokers(t, 1)
	topic := c.topic(t, 2)
	o := c.begin(t, topic, nil)
	now := time.Now()
	want := lines(0, 300)
	for i, l := range want {
		if i%100 == 50 {
			o.writeAt(t, now.Add(24*time.Hour), line("future", i))
		}
		o.writeAt(t, now, l)
	}
	o.finish(t, 3)
	c.arrived(t, topic, want)
	o.await(t, "poison", "INVALID_TIMESTAMP")
}

// A host whose clock is a day ahead has all records refused: that condemns none of them.
func TestClockAhead(t *testing.T) {
	c := brokers(t, 1)
	topic := c.topic(t, 2)
	o := c.begin(t, topic, nil)
	want := lines(0, 300)
	o.writeAt(t, time.Now().Add(24*time.Hour), want...)
	o.await(t, "hold", "INVALID_TIMESTAMP")
	c.alter(t, topic, "message.timestamp.after.max.ms", "9223372036854775807")
	o.finish(t, 0)
	c.arrived(t, topic, want)
}

func (c *cluster) alter(t *testing.T, topic, name, value string) {
	t.Helper()
	await(t, time.Minute, "altering the topic", func(ctx context.Context) error {
		r, err := c.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
		if err == nil {
			_, err = r.On(topic, nil)
		}
		return err
	})
}

// A compacted topic takes no record without a key: held, and said what to do.
func TestCompacted(t *testing.T) {
	c := brokers(t, 1)
	topic := c.topic(t, 2, "cleanup.policy", "compact")
	o := c.begin(t, topic, func(k *kafka.Config) { k.Key = "" })
	want := lines(0, 100)
	o.write(t, want...)
	o.await(t, "hold", "the topic is compacted: set Key")
	c.alter(t, topic, "cleanup.policy", "delete")
	o.finish(t, 0)
	c.arrived(t, topic, want)
}

// A quota makes the client wait. That is counted, and nothing is lost.
func TestQuota(t *testing.T) {
	c := brokers(t, 1)
	topic := c.topic(t, 2)
	client := "slow"
	entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &client}}
	quota := func(remove bool) {
		await(t, time.Minute, "setting the quota", func(ctx context.Context) error {
			r, err := c.admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: []kadm.AlterClientQuotaOp{
				{Key: "producer_byte_rate", Value: 50_000, Remove: remove}}}})
			for _, e := range r {
				err = errors.Join(err, e.Err)
			}
			return err
		})
	}
	quota(false)
	defer quota(true)
	o := c.begin(t, topic, func(k *kafka.Config) { k.Compression, k.ClientID, k.BatchBytes = "none", client, 32<<10 })
	// A broker applies a quota some time after the controller has accepted it.
	var want []string
	for began := time.Now(); o.d.Stats().Throttled < time.Second && time.Since(began) < time.Minute; {
		more := lines(len(want), len(want)+5000)
		o.write(t, more...)
		await(t, time.Minute, "delivery", o.Flush)
		want = append(want, more...)
	}
	if s := o.d.Stats(); s.Throttled < time.Second {
		t.Errorf("%+v", s)
	}
	o.finish(t, 0)
	c.arrived(t, topic, want)
}

// A broker is killed in the middle of a stream, several times, and brought back.
func TestKilled(t *testing.T) {
	c := brokers(t, 1)
	topic := c.topic(t, 4)
	o := c.begin(t, topic, nil)
	i := 0
	var want []string
	for range 3 {
		more := lines(i, i+4000)
		o.write(t, more[:1000]...)
		await(t, time.Minute, "delivery", o.Flush)
		o.write(t, more[1000:2000]...)
		c.brokers[0].kill()
		o.write(t, more[2000:]...)
		c.brokers[0].up(t)
		want = append(want, more...)
		i += 4000
		c.ready(t)
	}
	o.finish(t, 0)
	t.Logf("%d came twice; %+v", c.arrived(t, topic, want), o.d.Stats())
}

// A broker hangs in the middle of a stream, for longer than a session waits.
func TestHangs(t *testing.T) {
	c := brokers(t, 1)
	topic := c.topic(t, 4)
	o := c.begin(t, topic, nil)
	want := lines(0, 6000)
	o.write(t, want[:1000]...)
	await(t, time.Minute, "the beginning", o.Flush)
	o.write(t, want[1000:3000]...)
	c.brokers[0].hang()
	o.write(t, want[3000:]...)
	o.await(t, "send", "broker 1")
	c.brokers[0].goOn()
	o.finish(t, 0)
	t.Logf("%d came twice; %+v", c.arrived(t, topic, want), o.d.Stats())
}

// Three brokers, acks=all: the leader of a partition is killed in the middle of a stream, or
// hangs, and comes back. Sessions go on with the others.
func TestOneOfThree(t *testing.T) {
	c := brokers(t, 3)
	for _, how := range []string{"killed", "hangs"} {
		t.Run(how, func(t *testing.T) {
			topic := c.topic(t, 6)
			o := c.begin(t, topic, func(k *kafka.Config) { k.Timeout = time.Minute })
			var want []string
			for range 2 {
				more := lines(len(want), len(want)+4000)
				o.write(t, more[:1000]...)
				await(t, time.Minute, "delivery", o.Flush)
				o.write(t, more[1000:2000]...)
				b := c.leader(t, topic, 0)
				if how == "killed" {
					b.kill()
				} else {
					b.hang()
				}
				o.write(t, more[2000:]...)
				await(t, time.Minute, "delivery by two of three brokers", o.Flush)
				if how == "killed" {
					b.up(t)
				} else {
					b.goOn()
				}
				want = append(want, more...)
				c.ready(t)
			}
			o.finish(t, 0)
			twice := c.arrived(t, topic, want)
			if s := o.d.Stats(); twice > 0 || s.Sessions != 1 {
				t.Errorf("%d came twice; %+v", twice, s)
			}
		})
	}
}

// Partitions get other leaders in the middle of a stream.
func TestLeadersMove(t *testing.T) {
	c := brokers(t, 3)
	topic := c.topic(t, 3)
	o := c.begin(t, topic, func(k *kafka.Config) { k.Timeout = time.Minute })
	var want []string
	for round := range int32(6) {
		var assign kadm.AlterPartitionAssignmentsReq
		for p := range int32(3) {
			assign.Assign(topic, p, []int32{1 + (p+round)%3, 1 + (p+round+1)%3, 1 + (p+round+2)%3})
		}
		more := lines(len(want), len(want)+2000)
		o.write(t, more[:1000]...)
		await(t, time.Minute, "moving partitions", func(ctx context.Context) error {
			r, err := c.admin.AlterPartitionAssignments(ctx, assign)
			if err == nil {
				err = r.Error()
			}
			return err
		})
		elect := kmsg.NewPtrElectLeadersRequest()
		elect.TimeoutMillis = 5000
		await(t, time.Minute, "an election", func(ctx context.Context) error {
			_, err := elect.RequestWith(ctx, c.client)
			return err
		})
		o.write(t, more[1000:]...)
		want = append(want, more...)
	}
	o.finish(t, 0)
	twice := c.arrived(t, topic, want)
	if s := o.d.Stats(); twice > 0 || s.Sessions != 1 || s.Resent == 0 {
		t.Errorf("%d came twice; %+v", twice, s)
	}
}

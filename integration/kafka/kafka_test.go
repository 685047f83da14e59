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

// An output is an output to Kafka that keeps its events and dead letters.
type output struct {
	*deliver.Output
	d      *kafka.Driver
	events chan batch.Event

	mu          sync.Mutex
	deadLetters []string
}

// open opens an output to a topic, with short retry delays. The function set changes the
// configuration.
func (c *cluster) open(t *testing.T, topic string, set func(*kafka.Config)) *output {
	t.Helper()
	conf := kafka.Config{Brokers: c.addrs(), Topic: topic, Key: "{key}", Timeout: 2 * time.Second, RequestTimeout: time.Second}
	if set != nil {
		set(&conf)
	}
	d, err := kafka.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	o := &output{d: d, events: make(chan batch.Event, 10_000)}
	opts := deliver.OutputOptions{
		Name: "kafka", Codec: encode.JSON(nil).Codec(), BufferBytes: 4 << 20,
		OnError: func(e batch.Event) { o.events <- e },
		Slab:    slab.Options{FlushInterval: 5 * time.Millisecond, WhenFull: slab.Block()},
		Deliver: deliver.Options{
			Retry:   &deliver.RetryOptions{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond, FatalDelay: 100 * time.Millisecond},
			Breaker: &deliver.BreakerOptions{OpenMin: 20 * time.Millisecond, OpenMax: 200 * time.Millisecond, FatalDelay: 200 * time.Millisecond},
			DeadLetter: deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
				o.mu.Lock()
				defer o.mu.Unlock()
				for _, rec := range b.All() {
					o.deadLetters = append(o.deadLetters, strings.TrimSpace(string(rec.Data)))
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

// line returns a record with a key and a number.
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

// writeAt writes lines as records whose timestamp is the parameter at.
func (o *output) writeAt(t *testing.T, at time.Time, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if err := o.WriteRecord([]byte(l+"\n"), batch.Meta{Time: at.UnixNano()}); err != nil {
			t.Fatal(err)
		}
	}
}

// await waits for an event with the given Op whose text contains text.
func (o *output) await(t *testing.T, op, text string) batch.Event {
	t.Helper()
	var all []string
	for timeout := time.After(90 * time.Second); ; {
		select {
		case e := <-o.events:
			if e.Op == op && strings.Contains(e.String(), text) {
				return e
			}
			all = append(all, e.String())
		case <-timeout:
			t.Fatalf("no event %s with %q; got %q", op, text, all)
		}
	}
}

// finish closes the output. It checks that all records were delivered except the given number of
// dropped ones, which must be dead letters.
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
	if len(o.deadLetters) != int(dropped) {
		t.Errorf("%d dead letters, want %d: %.300q", len(o.deadLetters), dropped, o.deadLetters)
	}
}

// consume waits until a topic contains at least n records. It returns the records without
// duplicates, and the number of duplicates. It waits because a broker that hung may return old end
// offsets until it learns that it is no longer the leader.
func (c *cluster) consume(t *testing.T, topic string, n int) (first []*kgo.Record, duplicates int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs()...), kgo.ConsumeTopics(topic), kgo.DisableClientMetrics(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	total := int64(0)
	await(t, time.Minute, "reading the end offsets", func(ctx context.Context) error {
		ends, err := c.admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		total = 0
		ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
		if err == nil && total < int64(n) {
			err = fmt.Errorf("the topic has %d records, want %d", total, n)
		}
		return err
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w := dedup.New(nil)
	for n := int64(0); n < total; {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("got %d records of %d: %v", n, total, f.Err())
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

// checkArrived checks that, without duplicates, a topic contains each line in want once, and the
// lines of each key in order. It returns the number of duplicates.
func (c *cluster) checkArrived(t *testing.T, topic string, want []string) (duplicates int) {
	t.Helper()
	first, duplicates := c.consume(t, topic, len(want))
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
	return duplicates
}

// With each compression, each record arrives once and in order per key.
func TestDelivers(t *testing.T) {
	c := brokers(t, 1)
	for _, codec := range []string{"zstd", "lz4", "snappy", "gzip", "none"} {
		t.Run(codec, func(t *testing.T) {
			topic := c.newTopic(t, 4)
			o := c.open(t, topic, func(k *kafka.Config) { k.Compression, k.BatchBytes = codec, 16<<10 })
			want := lines(0, 5000)
			o.write(t, want...)
			o.finish(t, 0)
			if duplicates := c.checkArrived(t, topic, want); duplicates > 0 {
				t.Errorf("%d duplicates", duplicates)
			}
		})
	}
}

// trusted returns the TLS configuration of a client that trusts the certificate of the brokers.
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

// secure configures k for TLS and, if mechanism is not empty, for SASL with a user and a password.
func (c *cluster) secure(t *testing.T, k *kafka.Config, mechanism string) {
	k.TLS = c.trusted(t)
	k.Brokers = []string{fmt.Sprint("127.0.0.1:", c.brokers[0].tls)}
	if mechanism != "" {
		k.Brokers = []string{fmt.Sprint("127.0.0.1:", c.brokers[0].sasl)}
		k.User, k.Password, k.Mechanism = user, password, mechanism
	}
}

// Records arrive over TLS, and with each SASL mechanism over TLS.
func TestSecure(t *testing.T) {
	c := brokers(t, 1)
	for _, mechanism := range []string{"", "plain", "scram-sha-256", "scram-sha-512"} {
		t.Run("tls"+mechanism, func(t *testing.T) {
			topic := c.newTopic(t, 2)
			o := c.open(t, topic, func(k *kafka.Config) { c.secure(t, k, mechanism) })
			want := lines(0, 100)
			o.write(t, want...)
			o.finish(t, 0)
			c.checkArrived(t, topic, want)
		})
	}
}

// If the connection, its certificate or the credentials are rejected, one event reports it without
// the password, and the records are held.
func TestRejectedConnections(t *testing.T) {
	c := brokers(t, 1)
	topic := c.newTopic(t, 1)
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			o := c.open(t, topic, func(k *kafka.Config) {
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
			o := c.open(t, topic, set)
			o.write(t, line("k", 1))
			o.await(t, "hold", "certificate")
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		o := c.open(t, topic, func(k *kafka.Config) { k.Brokers = []string{fmt.Sprint("127.0.0.1:", c.brokers[0].tls)} })
		o.write(t, line("k", 1))
		o.await(t, "send", "speaking to a tls endpoint")
	})
	if first, _ := c.consume(t, topic, 0); len(first) > 0 {
		t.Errorf("%d records arrived, want none", len(first))
	}
}

// The records of a user without write permission are held until the user gets the permission.
func TestNoRights(t *testing.T) {
	c := brokers(t, 1)
	topic := c.newTopic(t, 2)
	acl := kadm.NewACLs().Deny("User:" + user).DenyHosts("*").Topics(topic).Operations(kadm.OpWrite).ResourcePatternType(kadm.ACLPatternLiteral)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.admin.CreateACLs(ctx, acl); err != nil {
		t.Fatal(err)
	}
	o := c.open(t, topic, func(k *kafka.Config) { c.secure(t, k, "scram-sha-512") })
	want := lines(0, 100)
	o.write(t, want...)
	o.await(t, "hold", "TOPIC_AUTHORIZATION_FAILED")
	if _, err := c.admin.DeleteACLs(ctx, acl); err != nil {
		t.Fatal(err)
	}
	o.finish(t, 0)
	c.checkArrived(t, topic, want)
}

// The records for a topic that does not exist are held until the topic is created.
func TestUnknownTopic(t *testing.T) {
	c := brokers(t, 1)
	topic := strings.ToLower(t.Name())
	o := c.open(t, topic, nil)
	want := lines(0, 100)
	o.write(t, want...)
	o.await(t, "hold", "UNKNOWN_TOPIC_OR_PARTITION")
	c.createTopic(t, topic, 2)
	o.finish(t, 0)
	c.checkArrived(t, topic, want)
}

// A record that is larger than the topic allows becomes a dead letter. A batch that is too large is
// split.
func TestTooLarge(t *testing.T) {
	c := brokers(t, 1)
	topic := c.newTopic(t, 2, "max.message.bytes", "3000")
	o := c.open(t, topic, func(k *kafka.Config) { k.Compression = "none" })
	want := lines(0, 300)
	o.write(t, want[:150]...)
	o.write(t, `{"msg":"`+strings.Repeat("x", 5000)+`","key":"k1"}`)
	o.write(t, want[150:]...)
	o.finish(t, 1)
	c.checkArrived(t, topic, want)
	// A record that is too large must not end the session. The session may end because a broker is
	// not ready for the new topic; then a batch is sent again.
	if s := o.d.Stats(); s.Cut == 0 || s.Refused != 1 || s.Sessions != 1 && s.Resent == 0 {
		t.Errorf("%+v", s)
	}
}

// The broker refuses a record with a time in the future and names it. Only that record becomes a
// dead letter.
func TestTimeInTheFuture(t *testing.T) {
	c := brokers(t, 1)
	topic := c.newTopic(t, 2)
	o := c.open(t, topic, nil)
	now := time.Now()
	want := lines(0, 300)
	for i, l := range want {
		if i%100 == 50 {
			o.writeAt(t, now.Add(24*time.Hour), line("future", i))
		}
		o.writeAt(t, now, l)
	}
	o.finish(t, 3)
	c.checkArrived(t, topic, want)
	o.await(t, "poison", "INVALID_TIMESTAMP")
}

// If the host's clock is a day ahead, the broker refuses all records. They are held, and none is
// dropped.
func TestClockAhead(t *testing.T) {
	c := brokers(t, 1)
	topic := c.newTopic(t, 2)
	o := c.open(t, topic, nil)
	want := lines(0, 300)
	o.writeAt(t, time.Now().Add(24*time.Hour), want...)
	o.await(t, "hold", "INVALID_TIMESTAMP")
	c.alter(t, topic, "message.timestamp.after.max.ms", "9223372036854775807")
	o.finish(t, 0)
	c.checkArrived(t, topic, want)
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

// A compacted topic rejects records without a key. They are held, and the event suggests setting
// Key.
func TestCompacted(t *testing.T) {
	c := brokers(t, 1)
	topic := c.newTopic(t, 2, "cleanup.policy", "compact")
	o := c.open(t, topic, func(k *kafka.Config) { k.Key = "" })
	want := lines(0, 100)
	o.write(t, want...)
	o.await(t, "hold", "the topic is compacted: set Key")
	c.alter(t, topic, "cleanup.policy", "delete")
	o.finish(t, 0)
	c.checkArrived(t, topic, want)
}

// A quota makes the driver wait. The waiting time is counted, and no record is lost.
func TestQuota(t *testing.T) {
	c := brokers(t, 1)
	topic := c.newTopic(t, 2)
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
	o := c.open(t, topic, func(k *kafka.Config) { k.Compression, k.ClientID, k.BatchBytes = "none", client, 32<<10 })
	// A broker applies a quota only some time after the controller has accepted it.
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
	c.checkArrived(t, topic, want)
}

// A broker is killed and restarted repeatedly while records are written. No record is lost.
func TestKilled(t *testing.T) {
	c := brokers(t, 1)
	topic := c.newTopic(t, 4)
	o := c.open(t, topic, nil)
	i := 0
	var want []string
	for range 3 {
		more := lines(i, i+4000)
		o.write(t, more[:1000]...)
		await(t, time.Minute, "delivery", o.Flush)
		o.write(t, more[1000:2000]...)
		c.brokers[0].kill()
		o.write(t, more[2000:]...)
		c.brokers[0].start(t)
		want = append(want, more...)
		i += 4000
		c.awaitReady(t)
	}
	o.finish(t, 0)
	t.Logf("%d duplicates; %+v", c.checkArrived(t, topic, want), o.d.Stats())
}

// A broker hangs while records are written, for longer than the timeout of a session. No record is
// lost.
func TestHangs(t *testing.T) {
	c := brokers(t, 1)
	topic := c.newTopic(t, 4)
	o := c.open(t, topic, nil)
	want := lines(0, 6000)
	o.write(t, want[:1000]...)
	await(t, time.Minute, "the beginning", o.Flush)
	o.write(t, want[1000:3000]...)
	c.brokers[0].pause()
	o.write(t, want[3000:]...)
	o.await(t, "send", "broker 1")
	c.brokers[0].resume()
	o.finish(t, 0)
	t.Logf("%d duplicates; %+v", c.checkArrived(t, topic, want), o.d.Stats())
}

// With three brokers and acks=all, the leader of a partition is killed or hangs while records are
// written, and then comes back. The session continues with the other brokers.
func TestOneOfThree(t *testing.T) {
	c := brokers(t, 3)
	for _, how := range []string{"killed", "hangs"} {
		t.Run(how, func(t *testing.T) {
			topic := c.newTopic(t, 6)
			o := c.open(t, topic, func(k *kafka.Config) { k.Timeout = time.Minute })
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
					b.pause()
				}
				o.write(t, more[2000:]...)
				await(t, time.Minute, "delivery by two of three brokers", o.Flush)
				if how == "killed" {
					b.start(t)
				} else {
					b.resume()
				}
				want = append(want, more...)
				c.awaitReady(t)
			}
			o.finish(t, 0)
			duplicates := c.checkArrived(t, topic, want)
			if s := o.d.Stats(); duplicates > 0 || s.Sessions != 1 {
				t.Errorf("%d duplicates; %+v", duplicates, s)
			}
		})
	}
}

// The leaders of partitions change while records are written. No record is lost or duplicated, and
// the session continues.
func TestLeadersMove(t *testing.T) {
	c := brokers(t, 3)
	topic := c.newTopic(t, 3)
	o := c.open(t, topic, func(k *kafka.Config) { k.Timeout = time.Minute })
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
	duplicates := c.checkArrived(t, topic, want)
	if s := o.d.Stats(); duplicates > 0 || s.Sessions != 1 || s.Resent == 0 {
		t.Errorf("%d duplicates; %+v", duplicates, s)
	}
}

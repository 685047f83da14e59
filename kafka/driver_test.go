package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
)

// A consumer reads all records once and in order per key, with each compression.
func TestEveryCompressionIsReadableByConsumers(t *testing.T) {
	for codec := range codecs {
		t.Run(codec, func(t *testing.T) {
			c := newCluster(t)
			conf := fastConfig(c, "logs")
			conf.Key, conf.Compression, conf.BatchBytes = "{key}", codec, 4<<10
			o := begin(t, conf, nil)
			want := lines(7, 500)
			o.write(t, want...)
			o.finish(t, 0)
			first, duplicates := removeDuplicates(t, consume(t, c, "logs"))
			if duplicates > 0 {
				t.Errorf("%d duplicates", duplicates)
			}
			wantAll(t, first, want)
			if s := o.stats(); s.Records != 500 || s.Sessions != 1 || s.Connected || s.Resent+s.Cut+s.Refused > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A Kafka record has the topic, key, partition, headers, timestamp and value of the log record.
func TestRecordsHaveTopicKeyHeadersAndTime(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(5, "logs.shop", "logs.sh_op_", "logs.unknown"))
	conf := fastConfig(c, "logs.{app}")
	conf.Key = "{user}"
	o := begin(t, conf, nil)
	at := time.UnixMilli(1700000000123).UTC()
	for _, rec := range []string{
		`{"app":"shop","user":"ann","trace_id":"4bf92f","msg":"a"}` + "\n",
		`{"app":"sh/opé","user":"bob","msg":"b"}` + "\n",
		`{"msg":"c"}` + "\n",
	} {
		if err := o.WriteRecord([]byte(rec), batch.Meta{Time: at.UnixNano(), Level: 4}); err != nil {
			t.Fatal(err)
		}
	}
	o.finish(t, 0)
	reference := kgo.StickyKeyPartitioner(nil).ForTopic("")
	byTopic := map[string]*kgo.Record{}
	for _, r := range consume(t, c, "logs.shop", "logs.sh_op_", "logs.unknown") {
		byTopic[r.Topic] = r
		if !r.Timestamp.Equal(at) || headerOf(r, "level") != "warn" || len(headerOf(r, "forebay-id")) < 34 {
			t.Errorf("%+v", r)
		}
		if r.Key != nil && int(r.Partition) != reference.Partition(&kgo.Record{Key: r.Key}, 5) {
			t.Errorf("key %q is in partition %d", r.Key, r.Partition)
		}
	}
	a, b, m := byTopic["logs.shop"], byTopic["logs.sh_op_"], byTopic["logs.unknown"]
	if a == nil || b == nil || m == nil {
		t.Fatalf("%v", byTopic)
	}
	if string(a.Key) != "ann" || headerOf(a, "trace-id") != "4bf92f" || !strings.HasSuffix(string(a.Value), `"msg":"a"}`) {
		t.Errorf("%+v", a)
	}
	if string(b.Key) != "bob" || len(b.Headers) != 2 || m.Key != nil {
		t.Errorf("%+v, %+v", b, m)
	}
}

// The trace id is found in a nested field, in a field with a dot in its name, and in a field with an
// escaped name.
func TestTraceHeaderIsFoundInEveryForm(t *testing.T) {
	for field, recs := range map[string]map[string]string{
		"trace_id": {`{"trace_id":"a1"}`: "a1", `{"msg":"trace_id"}`: "", `{"n":1}`: ""},
		"otel.id":  {`{"otel":{"id":"b2"}}`: "b2", `{"otel.id":7}`: "7", `{"id":"c"}`: ""},
		"tracé":    {`{"trac\u00e9":"d4"}`: "d4"},
		"-":        {`{"trace_id":"a1"}`: ""},
	} {
		d, err := New(Config{Brokers: []string{"b"}, Topic: "t", TraceField: field})
		if err != nil {
			t.Fatal(err)
		}
		k := newPacker(d)
		for rec, want := range recs {
			b := batch.Batch{Codec: encode.JSON(nil).Codec()}
			k.begin(&b)
			k.fill(&b, &batch.Record{Data: []byte(rec + "\n")})
			got := ""
			for _, h := range k.headers {
				if h.key == "trace-id" {
					got = string(h.value)
				}
			}
			if got != want {
				t.Errorf("%s of %s: %q, want %q", field, rec, got, want)
			}
		}
	}
}

// After a retriable error, a record is sent again within the session and stored once.
func TestRetriableErrorsResendOnce(t *testing.T) {
	for _, e := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.RequestTimedOut, kerr.KafkaStorageError, kerr.ThrottlingQuotaExceeded, kerr.UnknownServerError, kerr.CorruptMessage,
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID,
	} {
		t.Run(e.Message, func(t *testing.T) {
			c := newCluster(t)
			o := begin(t, fastConfig(c, "logs"), nil)
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: e, Count: 2})
			want := lines(3, 100)
			o.write(t, want...)
			o.finish(t, 0)
			all := consume(t, c, "logs")
			first, duplicates := removeDuplicates(t, all)
			wantAll(t, first, want)
			if s := o.stats(); duplicates > 0 || s.Sessions != 1 || h.Hits() < 1 || s.Resent < 1 {
				t.Errorf("%d duplicates, %+v, %d faults", duplicates, s, h.Hits())
			}
		})
	}
}

// A failure longer than Timeout ends the session. Records stored without an answer arrive twice,
// and a consumer can remove the duplicates by forebay-id.
func TestDuplicatesAfterLostAnswersAreRemovableByID(t *testing.T) {
	c := newCluster(t)
	o := begin(t, fastConfig(c, "logs"), nil)
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: -1})
	want := lines(3, 100)
	o.write(t, want...)
	o.await(t, "send", "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
	h.Remove()
	o.finish(t, 0)
	first, duplicates := removeDuplicates(t, consume(t, c, "logs"))
	wantAll(t, first, want)
	if duplicates == 0 || o.stats().Sessions < 2 {
		t.Errorf("%d duplicates, %+v", duplicates, o.stats())
	}
}

// If a broker hangs or closes the connection during a response, it may have stored the batch. The
// batch is sent again with the same sequence number and stored once.
func TestBatchWithoutAnswerIsStoredOnce(t *testing.T) {
	for name, gone := range map[string]error{"hangs": nil, "ends": errors.New("gone")} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			o := begin(t, fastConfig(c, "logs"), nil)
			c.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) { return nil, gone, true })
			want := lines(3, 100)
			o.write(t, want...)
			o.finish(t, 0)
			first, duplicates := removeDuplicates(t, consume(t, c, "logs"))
			wantAll(t, first, want)
			if s := o.stats(); duplicates > 0 || s.Resent == 0 {
				t.Errorf("%d duplicates, %+v", duplicates, s)
			}
		})
	}
}

// If a broker rejects the producer or its sequence number, the session ends. The next session sends
// all records again that are not stored.
func TestBrokenSequenceResendsInANewSession(t *testing.T) {
	for _, e := range []*kerr.Error{
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidProducerIDMapping,
	} {
		t.Run(e.Message, func(t *testing.T) {
			c := newCluster(t)
			o := begin(t, fastConfig(c, "logs"), nil)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: e})
			want := lines(3, 100)
			o.write(t, want...)
			o.finish(t, 0)
			first, _ := removeDuplicates(t, consume(t, c, "logs"))
			wantAll(t, first, want)
			if s := o.stats(); s.Sessions < 2 {
				t.Errorf("%+v", s)
			}
			o.await(t, "send", e.Message)
		})
	}
}

// After an error for which only a change of configuration helps, all records are held and an event
// is reported. After the change, all records are delivered.
func TestConfigurationErrorsHoldRecords(t *testing.T) {
	for _, e := range []*kerr.Error{
		kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.PolicyViolation, kerr.InvalidTopicException, kerr.UnsupportedForMessageFormat,
	} {
		for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Metadata, kmsg.InitProducerID} {
			t.Run(fmt.Sprintf("%s/%s", e.Message, kmsg.NameForKey(int16(key))), func(t *testing.T) {
				c := newCluster(t)
				o := begin(t, fastConfig(c, "logs"), nil)
				f := kfake.Fault{Keys: []kmsg.Key{key}, Err: e, Count: -1, TopLevel: key == kmsg.InitProducerID}
				if !f.TopLevel {
					f.Topic = "logs"
				}
				h := c.Fault(f)
				want := lines(3, 50)
				o.write(t, want...)
				o.await(t, "hold", e.Message)
				h.Remove()
				o.finish(t, 0)
				first, duplicates := removeDuplicates(t, consume(t, c, "logs"))
				wantAll(t, first, want)
				if duplicates > 0 {
					t.Errorf("%d duplicates", duplicates)
				}
			})
		}
	}
}

// Records for an unknown topic are held until the topic exists. With AutoCreate, the broker creates
// it.
func TestUnknownTopicHoldsRecords(t *testing.T) {
	c := newCluster(t)
	o := begin(t, fastConfig(c, "orders"), nil)
	want := lines(3, 50)
	o.write(t, want...)
	o.await(t, "hold", "topic orders: UNKNOWN_TOPIC_OR_PARTITION")
	if err := c.CreateTopic("orders", 3, nil); err != nil {
		t.Fatal(err)
	}
	o.finish(t, 0)
	first, _ := removeDuplicates(t, consume(t, c, "orders"))
	wantAll(t, first, want)

	c = newCluster(t, kfake.AllowAutoTopicCreation())
	conf := fastConfig(c, "orders")
	conf.AutoCreate = true
	o = begin(t, conf, nil)
	o.write(t, want...)
	o.finish(t, 0)
	first, _ = removeDuplicates(t, consume(t, c, "orders"))
	wantAll(t, first, want)
}

// A single record that is too large is a dead letter. A batch that is too large is divided.
func TestTooLargeRecordIsDeadLetterAndBatchIsSplit(t *testing.T) {
	c := newCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "3000"}))
	conf := fastConfig(c, "logs")
	conf.Key, conf.Compression = "{key}", "none"
	o := begin(t, conf, nil)
	want := lines(2, 200)
	large := line("k0", 1000)[:20] + strings.Repeat("x", 5000) + line("k0", 1000)[20:]
	o.write(t, want[:100]...)
	o.write(t, large)
	o.write(t, want[100:]...)
	o.finish(t, 1)
	first, duplicates := removeDuplicates(t, consume(t, c, "logs"))
	wantAll(t, first, want)
	if len(o.dead.records) != 1 || o.dead.records[0]+"\n" != large {
		t.Errorf("dead letters %.200q", o.dead.records)
	}
	// The record that is sent again for comparison may be stored twice.
	if s := o.stats(); duplicates > 1 || s.Cut == 0 || s.Refused != 1 || s.Sessions != 1 {
		t.Errorf("%d duplicates, %+v", duplicates, s)
	}
	o.await(t, "poison", "raise max.message.bytes of topic logs")
}

// named makes c check the records of each request. c refuses a batch with a record that contains
// the string bad. If names is set, the error names the record. restore ends the checks.
func named(c *kfake.Cluster, bad string, e *kerr.Error, names bool) (restore func()) {
	var over atomic.Bool
	c.ControlKey(0, func(r kmsg.Request) (kmsg.Response, error, bool) {
		if over.Load() {
			return nil, nil, false
		}
		resp, found := refuseBad(r.(*kmsg.ProduceRequest), bad, e, names)
		if found {
			c.KeepControl()
		}
		return resp, nil, found
	})
	return func() { over.Store(true) }
}

// refuseBad returns a response to req that refuses the records that contain the string bad. It also
// reports whether there are such records.
func refuseBad(req *kmsg.ProduceRequest, bad string, e *kerr.Error, names bool) (resp *kmsg.ProduceResponse, found bool) {
	resp = refuseAll(req, kerr.NotLeaderForPartition, "") // the records of the other partitions are sent again
	for i, rt := range req.Topics {
		for j, rp := range rt.Partitions {
			p := &resp.Topics[i].Partitions[j]
			var b kmsg.RecordBatch
			if b.ReadFrom(rp.Records) != nil {
				continue
			}
			recs, _ := kfake.BatchRecords(b)
			for at, rec := range recs {
				if !strings.Contains(string(rec.Value), bad) {
					continue
				}
				found = true
				p.ErrorCode = e.Code
				if names {
					n := kmsg.NewProduceResponseTopicPartitionErrorRecord()
					n.RelativeOffset = int32(at)
					p.ErrorRecords = append(p.ErrorRecords, n)
				}
			}
		}
	}
	return resp, found
}

// refuseAll returns a response to req that has the error e and the given message for each
// partition.
func refuseAll(req *kmsg.ProduceRequest, e *kerr.Error, text string) *kmsg.ProduceResponse {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, rt := range req.Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode, p.ErrorMessage = rp.Partition, e.Code, &text
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// Records that the broker names in a refusal become dead letters at once. The other records of the
// batch are delivered.
func TestNamedRecordsBecomeDeadLetters(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.InvalidRecord, kerr.InvalidTimestamp} {
		c := newCluster(t)
		conf := fastConfig(c, "logs")
		conf.Key = "{key}"
		o := begin(t, conf, func(r *deliver.OutputOptions) { r.Slab.FlushInterval = 50 * time.Millisecond })
		named(c, "poison", e, true)
		want := lines(3, 300)
		for i, l := range want {
			if i%100 == 50 {
				o.write(t, strings.Replace(l, `"m"`, `"poison"`, 1))
			}
			o.write(t, l)
		}
		o.finish(t, 3)
		first, duplicates := removeDuplicates(t, consume(t, c, "logs"))
		wantAll(t, first, want)
		if s := o.stats(); len(o.dead.records) != 3 || duplicates > 0 || s.Refused == 0 {
			t.Errorf("%d dead letters, %d duplicates, %+v", len(o.dead.records), duplicates, s)
		}
		o.await(t, "poison", e.Message)
	}
}

// A batch that the broker refuses without naming a record is divided until only the invalid record
// is refused.
func TestRefusedBatchLosesOnlyTheFaultyRecord(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.InvalidRecord, kerr.InvalidRequest} {
		c := newCluster(t)
		o := begin(t, fastConfig(c, "logs"), nil)
		named(c, "poison", e, false)
		want := lines(3, 60)
		o.write(t, want[:30]...)
		o.write(t, strings.Replace(want[30], `"m"`, `"poison"`, 1))
		o.write(t, want[30:]...)
		o.finish(t, 1)
		first, _ := removeDuplicates(t, consume(t, c, "logs"))
		wantAll(t, first, want)
		if len(o.dead.records) != 1 || !strings.Contains(o.dead.records[0], "poison") {
			t.Errorf("%q", o.dead.records)
		}
	}
}

// If a broker refuses every record because records have no key, no record becomes a dead letter:
// all are held, and the alarm names the setting.
func TestRefusalOfEveryRecordCondemnsNone(t *testing.T) {
	c := newCluster(t)
	o := begin(t, fastConfig(c, "logs"), nil)
	var faulty atomic.Bool
	faulty.Store(true)
	c.ControlKey(0, func(r kmsg.Request) (kmsg.Response, error, bool) {
		if !faulty.Load() {
			return nil, nil, false
		}
		c.KeepControl()
		return refuseAll(r.(*kmsg.ProduceRequest), kerr.InvalidRecord, "Compacted topic cannot accept message without key"), nil, true
	})
	want := lines(3, 50)
	o.write(t, want...)
	o.await(t, "hold", "the topic is compacted: set Key")
	faulty.Store(false)
	o.finish(t, 0)
	first, _ := removeDuplicates(t, consume(t, c, "logs"))
	wantAll(t, first, want)
}

// If a broker answers neither produce requests nor requests for the partition leaders, the error
// names the broker.
func TestErrorNamesTheBrokerThatDoesNotAnswer(t *testing.T) {
	c := newCluster(t)
	o := begin(t, fastConfig(c, "logs"), nil)
	want := lines(3, 50)
	o.write(t, want[:10]...)
	if err := o.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var down atomic.Bool
	down.Store(true)
	c.ControlKey(-1, func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if k := kmsg.Key(r.Key()); down.Load() && (k == kmsg.Produce || k == kmsg.Metadata) {
			return nil, errors.New("gone"), true
		}
		return nil, nil, false
	})
	o.write(t, want[10:]...)
	if e := o.await(t, "send", "later: "); !strings.Contains(e.String(), "broker ") {
		t.Errorf("no broker in %s", e)
	}
	down.Store(false)
	o.finish(t, 0)
	first, _ := removeDuplicates(t, consume(t, c, "logs"))
	wantAll(t, first, want)
}

// If a broker refuses every record, including copies of records that it accepted before, no record
// becomes a dead letter. All records are held, and the alarm gives the reason.
func TestFaultyBrokerCondemnsNoRecord(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.InvalidRequest, kerr.MessageTooLarge} {
		for _, names := range []bool{false, true} {
			for _, before := range []int{0, 100} {
				if e == kerr.MessageTooLarge && (before == 0 || names) {
					// If the broker has stored no record for comparison, the size alone decides.
					// Brokers name no record for this error.
					continue
				}
				t.Run(fmt.Sprintf("%s/names %v/took %d", e.Message, names, before), func(t *testing.T) {
					c := newCluster(t)
					conf := fastConfig(c, "logs")
					conf.Key = "{key}"
					o := begin(t, conf, nil)
					want := lines(3, 400)
					o.write(t, want[:before]...)
					if err := o.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
					restore := named(c, `"n"`, e, names)
					o.write(t, want[before:]...)
					text := "the partition has accepted no other record"
					if before > 0 {
						text = "the partition also refuses records that it accepted before"
					}
					if ev := o.await(t, "hold", text); !strings.Contains(ev.String(), e.Message) {
						t.Error(ev)
					}
					restore()
					o.finish(t, 0)
					first, _ := removeDuplicates(t, consume(t, c, "logs"))
					wantAll(t, first, want)
					if s := o.stats(); len(o.dead.records)+int(s.Refused) > 0 || o.d.limit("logs") != o.d.c.BatchBytes {
						t.Errorf("%d dead letters, %+v, batches of %d bytes", len(o.dead.records), s, o.d.limit("logs"))
					}
				})
			}
		}
	}
}

// If a record is stored without an answer and refused when sent again, its sequence number is not
// reused. If it were, the broker would discard the next record as a duplicate.
func TestRefusalAfterNoAnswerDoesNotReuseTheSequenceNumber(t *testing.T) {
	c := newCluster(t)
	conf := fastConfig(c, "logs")
	conf.BatchBytes, conf.Compression = 1<<10, "none"
	o := begin(t, conf, nil)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord})
	want := lines(1, 3)
	for i := range want { // one record per Kafka batch
		want[i] = strings.Replace(want[i], `"m"`, `"`+strings.Repeat("m", 600)+`"`, 1)
	}
	o.write(t, want...)
	o.finish(t, 0)
	first, _ := removeDuplicates(t, consume(t, c, "logs"))
	wantAll(t, first, want)
}

// If the first records of a partition are invalid, later ones are sent first and serve for
// comparison.
func TestInvalidFirstRecordsOfAPartitionAreCondemned(t *testing.T) {
	for _, names := range []bool{false, true} {
		c := newCluster(t)
		o := begin(t, fastConfig(c, "logs"), nil)
		named(c, "poison", kerr.InvalidRecord, names)
		want := lines(3, 60)
		for _, l := range want[:3] {
			o.write(t, strings.Replace(l, `"m"`, `"poison"`, 1))
		}
		o.write(t, want...)
		o.finish(t, 3)
		first, _ := removeDuplicates(t, consume(t, c, "logs"))
		wantAll(t, first, want)
		if len(o.dead.records) != 3 {
			t.Errorf("%q", o.dead.records)
		}
	}
}

// Records are stored in order even if partitions move to another broker.
func TestOrderIsKeptWhenPartitionsMove(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(3))
	conf := fastConfig(c, "logs")
	conf.Key = "{key}"
	o := begin(t, conf, nil)
	want := lines(11, 3000)
	for i, l := range want {
		if i%300 == 0 {
			c.ShufflePartitionLeaders()
		}
		o.write(t, l)
	}
	o.finish(t, 0)
	first, duplicates := removeDuplicates(t, consume(t, c, "logs"))
	wantAll(t, first, want)
	if s := o.stats(); duplicates > 0 || s.Sessions != 1 {
		t.Errorf("%d duplicates, %+v", duplicates, s)
	}
}

// After refused credentials, all records are held, and the event does not contain the password.
// With the correct credentials, the records are delivered.
func TestRefusedCredentialsHoldRecordsAndStayHidden(t *testing.T) {
	const secret = "s3cr%t/Pässword"
	var wrong atomic.Bool
	for mechanism, name := range map[string]string{"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"} {
		c := newCluster(t, kfake.EnableSASL(), kfake.Superuser(name, "ann", secret))
		conf := fastConfig(c, "logs")
		conf.User, conf.Password, conf.Mechanism = "ann", secret+"x", mechanism
		// The function answers requests of type SaslAuthenticate. Without it, kfake would close the
		// connection.
		c.ControlKey(36, func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			resp.ErrorMessage = kmsg.StringPtr("no user with " + secret + "x")
			return resp, nil, wrong.Load()
		})
		wrong.Store(true)
		o := begin(t, conf, func(r *deliver.OutputOptions) { r.CloseTimeout = 100 * time.Millisecond })
		o.write(t, line("k", 1))
		e := o.await(t, "hold", "SASL_AUTHENTICATION_FAILED")
		if strings.Contains(e.String(), secret) || strings.Contains(fmt.Sprintf("%+v %s", o.d.Stats(), o.d), secret) {
			t.Errorf("%s: the password is in: %v", mechanism, e)
		}
		if err := o.Close(); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: Close: %v", mechanism, err)
		}
		wrong.Store(false)
		conf.Password = secret
		o = begin(t, conf, nil)
		o.write(t, line("k", 1))
		if o.finish(t, 0); o.stats().Records != 1 {
			t.Errorf("%s: %+v", mechanism, o.stats())
		}
	}
}

// If a broker closes the connection without a reason, the event names the possible causes.
func TestClosedConnectionNamesPossibleCauses(t *testing.T) {
	c := newCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "ann", "x"))
	conf := fastConfig(c, "logs")
	conf.User, conf.Password, conf.Mechanism = "ann", "hunter2", "plain"
	o := begin(t, conf, func(r *deliver.OutputOptions) { r.CloseTimeout = 100 * time.Millisecond })
	o.write(t, line("k", 1))
	o.await(t, "send", "it may require TLS, or have refused the credentials")
	if o.Close() == nil {
		t.Error("Close of an output that loses a record returns no error")
	}
}

// Credentials that a broker repeats in a message are hidden, even short ones. A topic with the same
// name as the user is not hidden.
func TestCredentialsRepeatedByABrokerAreHidden(t *testing.T) {
	for _, password := range []string{"p", "swordfish", "hunter22"} {
		c := newCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "logs", password))
		conf := fastConfig(c, "logs")
		conf.User, conf.Password, conf.Mechanism = "logs", password, "plain"
		text := fmt.Sprintf("bad %s [%s] of logs", password, password)
		c.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
			resp := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode, resp.ErrorMessage = kerr.SaslAuthenticationFailed.Code, &text
			return resp, nil, true
		})
		o := begin(t, conf, nil)
		o.write(t, line("k", 1))
		var events []string
		events = append(events, o.await(t, "hold", "SASL_AUTHENTICATION_FAILED").String())
		o.await(t, "recovered", "")
		c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
			return refuseAll(r.(*kmsg.ProduceRequest), kerr.TopicAuthorizationFailed, text), nil, true
		})
		o.write(t, line("k", 2))
		hold := o.await(t, "hold", "TOPIC_AUTHORIZATION_FAILED").String()
		if events = append(events, hold); !strings.Contains(hold, "of topic logs") {
			t.Error(hold)
		}
		o.finish(t, 0)
		for _, e := range events {
			if strings.Contains(e, "["+password) || strings.Contains(e, "bad "+password) || strings.Contains(e, "of logs") {
				t.Errorf("password %s: %s", password, e)
			}
		}
	}
}

// Without brokers, an event reports that no session can begin. Delivery starts when brokers become
// reachable.
func TestDeliveryStartsWhenBrokersAreReachable(t *testing.T) {
	c := newCluster(t)
	conf := fastConfig(c, "logs")
	conf.Brokers = []string{"127.0.0.1:1"}
	o := begin(t, conf, func(r *deliver.OutputOptions) { r.CloseTimeout = 100 * time.Millisecond })
	o.write(t, line("k", 1))
	o.await(t, "send", "cannot begin")
	if err := o.Close(); err == nil {
		t.Error("Close of an output that loses a record returns no error")
	}
}

// If a server accepts connections and never answers, the error contains its address.
func TestSilentServerIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := begin(t, Config{Brokers: []string{l.Addr().String()}, Topic: "logs", DialTimeout: 100 * time.Millisecond}, nil)
	o.write(t, lines(1, 1)...)
	o.await(t, "send", "no broker answered at "+l.Addr().String()+" within 100ms")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if rep, err := o.Shutdown(ctx); err == nil || rep.Dropped.Total() != 1 {
		t.Error(rep, err)
	}
}

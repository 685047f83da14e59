package main

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/kafka"
	"github.com/forebay-log/forebay/slab"
)

// kafkaBatch is the largest size of a request in bytes.
const kafkaBatch = 1_000_000

// size is the length of a line in bytes.
const size = 256

// line returns a JSON line.
func line() []byte {
	b := []byte(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"`)
	b = append(b, bytes.Repeat([]byte{'x'}, size-len(b)-3)...)
	return append(b, "\"}\n"...)
}

// tally returns a function that computes a tally from the number of lines that stored returns.
func tally(stored func() uint64) func() (h.Tally, error) {
	return func() (h.Tally, error) { n := stored(); return h.Tally{Records: n, Bytes: n * size}, nil }
}

// broker starts a broker that checks requests and stores nothing.
func broker() (*kfake.Cluster, error) {
	return kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "logs"), kfake.BlackholeProduce())
}

func toKafka(*h.Env) (*h.Subject, error) {
	c, err := broker()
	if err != nil {
		return nil, err
	}
	d, err := kafka.New(kafka.Config{Brokers: c.ListenAddrs(), Topic: "logs", Compression: "lz4", BatchBytes: kafkaBatch, Window: 4})
	if err != nil {
		return nil, err
	}
	out, err := deliver.NewOutput(d, &deliver.OutputOptions{
		Name: name, Codec: encode.JSON(nil).Codec(), BufferBytes: 4 << 20,
		Slab: slab.Options{SlabBytes: 256 << 10, WhenFull: slab.Block()}, CloseTimeout: time.Minute,
	})
	rec := line()
	return &h.Subject{
		Run: func(_, n int) {
			for range n {
				out.Write(rec)
			}
		},
		Drain: func() error { return out.Close() },
		Tally: tally(func() uint64 { return d.Stats().Records }),
		Close: func() error { c.Close(); return nil },
	}, err
}

// franz produces the same values and headers as toKafka, but through franz-go alone.
func franz(*h.Env) (*h.Subject, error) {
	c, err := broker()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("logs"), kgo.DisableClientMetrics(),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerBatchMaxBytes(kafkaBatch))
	if err != nil {
		return nil, err
	}
	rec := line()
	value := rec[:len(rec)-1]
	var stored atomic.Uint64
	promise := func(_ *kgo.Record, err error) {
		if err == nil {
			stored.Add(1)
		}
	}
	id := []byte("5f1d0c3a9be24f60a1c7d2e8b4960357-1000000")
	return &h.Subject{
		Run: func(_, n int) {
			for range n {
				headers := []kgo.RecordHeader{{Key: "forebay-id", Value: id}, {Key: "level", Value: []byte("info")}}
				cl.Produce(context.Background(), &kgo.Record{Value: value, Timestamp: time.Unix(1, 0), Headers: headers}, promise)
			}
		},
		Drain: func() error { return cl.Flush(context.Background()) },
		Tally: tally(stored.Load),
		Close: func() error { cl.Close(); c.Close(); return nil },
	}, nil
}

func init() {
	const most = 1_000_000
	h.Register(h.Row{
		Name:   "kafka/lz4",
		What:   fmt.Sprintf("up to %d records of %d bytes into kfake, one partition, acks=all, compression lz4, until stored", most, size),
		MaxOps: most, Reference: "franz-go",
		Contenders: []h.Contender{
			{Name: name, Kind: h.Ours, Note: "window 4", New: toKafka},
			{Name: "franz-go", Kind: h.Rival, Note: "Produce, the same headers", New: franz},
		},
		Targets: []h.Target{h.Versus(name, "franz-go", 1.0)},
	})
}

//go:build linux

package kafka

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/kafka"
	"github.com/forebay-log/forebay/slab"
)

// BenchmarkStored writes records of 256 bytes to one partition of a real broker with acks=all, and
// waits until all are stored. It compares forebay's driver with franz-go alone, with the same
// headers and batches. Run it with -benchtime 1000000x.
func BenchmarkStored(b *testing.B) {
	c := brokers(b, 1)
	rec := []byte(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"`)
	rec = append(rec, bytes.Repeat([]byte{'x'}, 256-len(rec)-3)...)
	rec = append(rec, "\"}\n"...)
	for _, codec := range []string{"none", "lz4"} {
		b.Run(codec+"/forebay", func(b *testing.B) {
			topic := c.benchTopic(b)
			b.ResetTimer()
			d, err := kafka.New(kafka.Config{Brokers: c.addrs(), Topic: topic, Compression: codec})
			if err != nil {
				b.Fatal(err)
			}
			out, err := deliver.NewOutput(d, &deliver.OutputOptions{
				Name: "kafka", Codec: encode.JSON(nil).Codec(), BufferBytes: 4 << 20,
				Slab: slab.Options{SlabBytes: 256 << 10, WhenFull: slab.Block()}, CloseTimeout: time.Minute,
			})
			if err != nil {
				b.Fatal(err)
			}
			for range b.N {
				out.Write(rec)
			}
			if err := out.Close(); err != nil || d.Stats().Records != uint64(b.N) {
				b.Fatal(err, d.Stats())
			}
		})
		b.Run(codec+"/franz-go", func(b *testing.B) {
			topic := c.benchTopic(b)
			b.ResetTimer()
			z := kgo.NoCompression()
			if codec == "lz4" {
				z = kgo.Lz4Compression()
			}
			cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs()...), kgo.DefaultProduceTopic(topic), kgo.DisableClientMetrics(),
				kgo.ProducerBatchCompression(z), kgo.ProducerBatchMaxBytes(1_000_000))
			if err != nil {
				b.Fatal(err)
			}
			defer cl.Close()
			var stored atomic.Uint64
			id := []byte("5f1d0c3a9be24f60a1c7d2e8b4960357-1000000")
			for range b.N {
				r := &kgo.Record{Value: rec[:255], Timestamp: time.Unix(1, 0), Headers: []kgo.RecordHeader{{Key: "forebay-id", Value: id}, {Key: "level", Value: []byte("info")}}}
				cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
					if err == nil {
						stored.Add(1)
					}
				})
			}
			if err := cl.Flush(context.Background()); err != nil || stored.Load() != uint64(b.N) {
				b.Fatal(err, stored.Load())
			}
		})
	}
}

var benches atomic.Int64

// benchTopic creates a topic that retains little data.
func (c *cluster) benchTopic(b *testing.B) string {
	topic := fmt.Sprint("bench", benches.Add(1))
	c.createTopic(b, topic, 1, "retention.bytes", "10000000", "segment.bytes", "50000000")
	return topic
}

// Command kafka measures the driver of Kafka beside bare franz-go, both into kfake in the
// same process. It has a module of its own because of what it links.
//
//	GOWORK=off go -C bench/kafka run . [-rows regexp] [-count N]
//
// make bench runs it, too; its results are in the same file.
package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"sync"
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

const (
	name  = "forebay"
	kept  = "slab, kept"
	size  = 256
	most  = 1_000_000
	batch = 1_000_000
)

// line is a JSON line of size bytes.
func line() []byte {
	b := []byte(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"`)
	b = append(b, bytes.Repeat([]byte{'x'}, size-len(b)-3)...)
	return append(b, "\"}\n"...)
}

// broker is a cluster that checks what it gets and keeps nothing.
func broker() (*kfake.Cluster, error) {
	return kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "logs"), kfake.BlackholeProduce())
}

// output is memory of 4 MiB, or more, before a destination.
func output(d deliver.Destination, bytes int) (*deliver.Output, error) {
	return deliver.NewOutput(d, &deliver.OutputOptions{
		Name: name, Codec: encode.JSON(nil).Codec(), BufferBytes: bytes,
		Slab:         slab.Options{SlabBytes: 256 << 10, WhenFull: slab.Block()},
		CloseTimeout: time.Minute,
	})
}

// ours writes records until all are stored.
func ours(codec string, window int) func(*h.Env) (*h.Subject, error) {
	return func(*h.Env) (*h.Subject, error) {
		c, err := broker()
		if err != nil {
			return nil, err
		}
		d, err := kafka.New(kafka.Config{Brokers: c.ListenAddrs(), Topic: "logs", Compression: codec, BatchBytes: batch, Window: window})
		if err != nil {
			return nil, err
		}
		out, err := output(d, 4<<20)
		if err != nil {
			return nil, err
		}
		rec := line()
		return &h.Subject{
			Run: func(_, n int) {
				for range n {
					out.Write(rec)
				}
			},
			Drain: out.Close,
			Tally: func() (h.Tally, error) {
				n := d.Stats().Records
				return h.Tally{Records: n, Bytes: n * size}, nil
			},
			Close: func() error { c.Close(); return nil },
		}, nil
	}
}

// bare produces the same values by franz-go alone; with headers also what the driver adds.
func bare(codec kgo.CompressionCodec, headers bool) func(*h.Env) (*h.Subject, error) {
	return func(*h.Env) (*h.Subject, error) {
		c, err := broker()
		if err != nil {
			return nil, err
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("logs"), kgo.DisableClientMetrics(),
			kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(batch))
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
					r := &kgo.Record{Value: value, Timestamp: time.Unix(1, 0)}
					if headers {
						r.Headers = []kgo.RecordHeader{{Key: "forebay-id", Value: id}, {Key: "level", Value: []byte("info")}}
					}
					cl.Produce(context.Background(), r, promise)
				}
			},
			Drain: func() error { return cl.Flush(context.Background()) },
			Tally: func() (h.Tally, error) {
				n := stored.Load()
				return h.Tally{Records: n, Bytes: n * size}, nil
			},
			Close: func() error { cl.Close(); c.Close(); return nil },
		}, nil
	}
}

// calls measures what Write costs its caller: processor time of the thread that calls. What
// it waits for a processor, which a broker in this process uses, too, is beside it. Memory takes
// all records of the sample.
func calls(open func() (deliver.Destination, func(), error)) func(*h.Env) (*h.Sample, error) {
	return func(env *h.Env) (*h.Sample, error) {
		d, end, err := open()
		if err != nil {
			return nil, err
		}
		out, err := output(d, 256<<20)
		if err != nil {
			return nil, err
		}
		n := 800_000
		if env.Quick {
			n = 1000
		}
		rec := line()
		for range n { // memory that nobody has used yet costs a page fault for every 16 records
			out.Write(rec)
		}
		if err := out.Flush(context.Background()); err != nil {
			return nil, err
		}
		if g, ok := d.(*gate); ok {
			g.mu.Lock()
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		began, used := time.Now(), h.ThreadTime()
		for range n {
			out.Write(rec)
		}
		used, took := h.ThreadTime()-used, time.Since(began)
		if g, ok := d.(*gate); ok {
			g.mu.Unlock()
		}
		err = out.Close()
		end()
		return &h.Sample{Value: float64(used) / float64(n), Ops: n, More: map[string]float64{"by the clock": float64(took) / float64(n)}}, err
	}
}

func intoKafka() (deliver.Destination, func(), error) {
	c, err := broker()
	if err != nil {
		return nil, nil, err
	}
	d, err := kafka.New(kafka.Config{Brokers: c.ListenAddrs(), Topic: "logs", Compression: "lz4"})
	return d, c.Close, err
}

func intoNothing() (deliver.Destination, func(), error) {
	return deliver.ToWriter(io.Discard), func() {}, nil
}

// intoReader reads each byte once, as every destination that sends has to.
func intoReader() (deliver.Destination, func(), error) {
	return deliver.ToWriter(crc32.NewIEEE()), func() {}, nil
}

// A gate is a writer that takes nothing while mu is held.
type gate struct {
	deliver.Destination
	mu sync.Mutex
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(p), nil
}

func intoGate() (deliver.Destination, func(), error) {
	g := new(gate)
	g.Destination = deliver.ToWriter(g)
	return g, func() {}, nil
}

func rows() []h.Row {
	var rows []h.Row
	for _, z := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{{"none", kgo.NoCompression()}, {"lz4", kgo.Lz4Compression()}} {
		rows = append(rows, h.Row{
			Name:   "kafka/" + z.name,
			What:   fmt.Sprintf("up to %d records of %d bytes into kfake, one partition, acks=all, compression %s, until stored", most, size, z.name),
			Target: "≤ 1.0 × franz-go with the same headers", MaxOps: most, Reference: "franz-go",
			Contenders: []h.Contender{
				{Name: name, Kind: h.Ours, Note: "window 4", New: ours(z.name, 4)},
				{Name: "franz-go", Kind: h.Rival, Note: "Produce, the same headers", New: bare(z.codec, true)},
				{Name: "franz-go, values only", Kind: h.Reference, Note: "Produce without headers", New: bare(z.codec, false)},
			},
			Verdict: h.Versus(name, "franz-go", 1.0),
		})
	}
	return append(rows, h.Row{
		Name:   "kafka/call",
		What:   fmt.Sprintf("processor time that Write of a record of %d bytes takes its caller, while records go to kfake, in this process, or nowhere; memory holds them all", size),
		Target: "≤ 1.05 × slab, kept", Unit: "ns/call", Reference: kept,
		Contenders: []h.Contender{
			{Name: name, Kind: h.Ours, Note: "lz4", Sample: calls(intoKafka)},
			{Name: "slab", Kind: h.Reference, Note: "into io.Discard: a few slabs are used again and again, and stay in the cache", Sample: calls(intoNothing)},
			{Name: kept, Kind: h.Reference, Note: "into a writer that takes nothing meanwhile: all records stay in memory", Sample: calls(intoGate)},
			{Name: "slab, read", Kind: h.Reference, Note: "into a checksum: the destination reads what the caller wrote", Sample: calls(intoReader)},
		},
		Verdict: h.Versus(name, kept, 1.05),
	})
}

func init() { h.Register(rows()...) }

func main() { os.Exit(h.Program("../results/latest.json", time.Second)) }

package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/otlp"
	"github.com/forebay-log/forebay/slab"
)

const (
	otlpRecords = 1_000_000 // of a sample
	otlpBatch   = 10_000    // records of a request
)

// A receiver is a transport that counts bytes and answers 200.
type receiver struct{ bytes atomic.Uint64 }

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	n, err := io.Copy(io.Discard, req.Body)
	req.Body.Close()
	r.bytes.Add(uint64(n))
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/x-protobuf"}}, Body: io.NopCloser(strings.NewReader("")), Request: req}, err
}

const message = "User 42 performed purchase on resource res-42"

// toOTLP encodes records and sends them.
func toOTLP(compression string) func(*h.Env) (*h.Subject, error) {
	return func(*h.Env) (*h.Subject, error) {
		to := new(receiver)
		x, err := otlp.New(otlp.Config{
			URL:          "http://otel.test",
			Compression:  compression,
			BatchBytes:   4 << 20,
			BatchRecords: otlpBatch,
			HTTP:         httpclient.Options{Client: &http.Client{Transport: to}},
		})
		if err != nil {
			return nil, err
		}
		out, err := deliver.NewOutput(x, &deliver.OutputOptions{
			Name: name, Codec: x.Encoder().Codec(), BufferBytes: 16 << 20, Slab: slab.Options{SlabBytes: 1 << 20, WhenFull: slab.Block()}, CloseTimeout: time.Minute,
		})
		if err != nil {
			return nil, err
		}
		s := x.Encoder().Scope()
		r := &encode.Record{Time: time.Now(), Message: message, Attrs: []slog.Attr{slog.Int("UserId", 42), slog.String("Action", "purchase"),
			slog.String("ResourceId", "res-42"), slog.Float64("Duration", 54.5), slog.Bool("Success", true)}}
		var rec []byte
		return &h.Subject{
			Run: func(_, n int) {
				for range n {
					b, meta, err := s.Append(rec[:0], r)
					if err == nil {
						out.WriteRecord(b, meta)
					}
					rec = b
				}
			},
			Drain: out.Close,
			Tally: func() (h.Tally, error) {
				return h.Tally{Records: out.Account().Delivered, Bytes: to.bytes.Load()}, nil
			},
		}, nil
	}
}

// otelSDK emits the same records through the SDK.
func otelSDK(compression otlploghttp.Compression) func(*h.Env) (*h.Subject, error) {
	return func(*h.Env) (*h.Subject, error) {
		to := new(receiver)
		exp, err := otlploghttp.New(context.Background(), otlploghttp.WithEndpointURL("http://otel.test/v1/logs"),
			otlploghttp.WithHTTPClient(&http.Client{Transport: to}), otlploghttp.WithCompression(compression))
		if err != nil {
			return nil, err
		}
		counted := &counter{Exporter: exp}
		p := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(counted,
			sdklog.WithMaxQueueSize(otlpRecords), sdklog.WithExportMaxBatchSize(otlpBatch), sdklog.WithExportInterval(time.Second))))
		logger := p.Logger("bench")
		now := time.Now()
		return &h.Subject{
			Run: func(_, n int) {
				for range n {
					var r log.Record
					r.SetTimestamp(now)
					r.SetObservedTimestamp(now)
					r.SetSeverity(log.SeverityInfo)
					r.SetSeverityText("INFO")
					r.SetBody(attribute.StringValue(message))
					r.AddAttributes(attribute.Int("UserId", 42), attribute.String("Action", "purchase"), attribute.String("ResourceId", "res-42"), attribute.Float64("Duration", 54.5), attribute.Bool("Success", true))
					logger.Emit(context.Background(), r)
				}
			},
			Drain: func() error { return p.Shutdown(context.Background()) },
			Tally: func() (h.Tally, error) {
				return h.Tally{Records: counted.n.Load(), Bytes: to.bytes.Load()}, nil
			},
		}, nil
	}
}

// A counter counts the records that an exporter has sent.
type counter struct {
	sdklog.Exporter
	n atomic.Uint64
}

func (c *counter) Export(ctx context.Context, recs []sdklog.Record) error {
	err := c.Exporter.Export(ctx, recs)
	if err == nil {
		c.n.Add(uint64(len(recs)))
	}
	return err
}

func init() {
	const sdk = "otlploghttp"
	for _, z := range []struct {
		name string
		code otlploghttp.Compression
	}{{"none", otlploghttp.NoCompression}, {"gzip", otlploghttp.GzipCompression}} {
		h.Register(h.Row{
			Name:   "otlp/" + z.name,
			What:   "records with a message and 5 attributes as requests of up to 10,000, to a receiver in the same process, compression " + z.name + ", until they are accepted",
			Target: "≤ 0.2 × otlploghttp, ≤ 0.05 allocations", MaxOps: otlpRecords, Reference: sdk,
			Contenders: []h.Contender{
				{Name: name, Kind: h.Ours, Note: "encode, slab, request", New: toOTLP(z.name)},
				{Name: sdk, Kind: h.Rival, Note: "Emit, batch processor", New: otelSDK(z.code)},
			},
			Verdict: h.Versus(name, sdk, 0.2),
		})
	}
}

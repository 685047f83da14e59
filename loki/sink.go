package loki

import (
	"fmt"
	"log/slog"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// A Sink sends records to Loki. It is a [deliver.Output] in front of a [Pusher], and an
// output of a forebay.Router whose route encodes with [Sink.Encoder]:
//
//	sink, err := loki.New(cfg)
//	…
//	r, err := forebay.NewRouter(forebay.Route(sink.Encoder(), sink.Output(slog.LevelInfo)))
//
// Records written without a Router must be entries of its Encoder with the matching Meta,
// for example from [Pusher.AppendLine]: use WriteRecord. All methods may be called from
// any goroutine, also during and after Close.
type Sink struct {
	*output

	// Pusher is the destination of the Sink. It has the counters of the pushes and
	// AppendLine. It is set by New.
	Pusher *Pusher
}

// output embeds the methods of a deliver.Output without its name, because Output is a
// method of Sink.
type output = deliver.Output

// New returns a Sink. Loki need not be up. The error lists every problem of c. The
// goroutines of the Sink end with Close.
func New(c Config) (*Sink, error) {
	p, err := NewPusher(c)
	if err != nil {
		return nil, err
	}
	out, err := deliver.NewOutput(p, p.c.output(p))
	if err != nil {
		return nil, fmt.Errorf("loki: config: %w", err)
	}
	return &Sink{out, p}, nil
}

// output returns the options of the buffer and the delivery in front of p.
func (c *Config) output(p *Pusher) *deliver.OutputOptions {
	o := &deliver.OutputOptions{
		Name: c.Name, Codec: p.enc.codec, CodecFor: p.CodecFor,
		Deliver: deliver.Options{
			Retry: c.Retry, Breaker: c.Breaker, Handler: c.ErrorHandler, PendingLimit: c.PendingLimit,
			DeadLetter: c.DeadLetter, Spill: c.Spill, AsideBytes: min(maxAsideBytes, c.BufferBytes),
		},
		BufferBytes: c.BufferBytes, BufferRecords: c.BufferRecords,
		FallbackFile: c.FallbackFile, DeadLetterFile: c.DeadLetterFile,
		SpoolDir: c.SpoolDir, Spool: spool.Options{MaxBytes: c.SpoolBytes},
		CloseTimeout: c.CloseTimeout, OnError: c.OnError,
	}
	if c.Slab != nil {
		o.Slab = *c.Slab
	}
	if o.Slab.Crash == nil {
		o.CrashDir = c.CrashDir
	}
	defaultTo(&o.CloseTimeout, o.Slab.CloseTimeout)
	defaultTo(&o.Slab.SlabBytes, c.SlabBytes)
	defaultTo(&o.Slab.SlabCount, max(2, c.BufferBytes/o.Slab.SlabBytes))
	defaultTo(&o.Slab.WhenFull, c.whenFull)
	if o.Slab.FlushLevel == nil {
		o.Slab.FlushLevel = slab.NoFlushLevel // a burst of errors would be a burst of requests
		if p.enc.eager != nil {
			o.Slab.FlushLevel = p.enc.eager
		}
	}
	return o
}

// Encoder returns the encoder for records of s. Pass it to the forebay.Route that has s as
// an output.
func (s *Sink) Encoder() encode.Encoder { return s.Pusher.Encoder() }

// Output returns s as an output of a forebay.Route for records of at least level. Closing
// the Router closes s. To keep s open, pass it to forebay.Output.
func (s *Sink) Output(level slog.Leveler, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.OutputCloser(level, s, opts...)
}

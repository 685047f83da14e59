package fluent

import (
	"fmt"
	"log/slog"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// A Sink sends records to a Forward server: it is a [deliver.Output] in front of a [Client]. It
// is an output of a forebay.Router whose route encodes with [Sink.Encoder], or with an encoder of
// [NewEncoder]:
//
//	sink, err := fluent.New(cfg)
//	…
//	r, err := forebay.NewRouter(forebay.Route(sink.Encoder(), sink.Output(slog.LevelInfo)))
//
// Records that are written without an encoder must be events of [AppendEvent]. Records of Write
// have the tag Config.Tag, records of WriteRecord the tag of their Meta.Stream, which [Tags]
// numbers. All methods are safe for concurrent use, including during and after Close.
type Sink struct {
	*output

	// Client is the destination of the Sink. It has the counters of the connection. New sets
	// it.
	Client *Client

	c   *resolved
	enc encode.Encoder
}

// output has the methods of a deliver.Output where Output is a method itself.
type output = deliver.Output

// New returns a Sink. The server need not be reachable. The error names all invalid fields of c.
// The goroutines of the Sink end with Close.
func New(c Config) (*Sink, error) {
	s, err := newSink(c)
	if err != nil {
		return nil, err
	}
	s.output, err = deliver.NewOutput(s.Client, s.outputOptions())
	if err != nil {
		return nil, fmt.Errorf("fluent: %w", err)
	}
	return s, nil
}

// newSink returns a Sink without memory and delivery.
func newSink(c Config) (*Sink, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	s := &Sink{c: r, Client: newClient(r)}
	s.enc, err = NewEncoder(&EncoderOptions{MessageKey: r.MessageKey, IntegerTime: r.IntegerTime, TimeFields: r.TimeFields, Errors: r.Errors})
	return s, err
}

// outputOptions returns the options of memory and delivery.
func (s *Sink) outputOptions() *deliver.OutputOptions {
	r := s.c
	return &deliver.OutputOptions{
		Name: r.Name, Codec: Codec(), CodecFor: codecFor,
		Slab: slab.Options{
			SlabBytes: r.SlabBytes, MaxRecord: r.MaxRecord, FlushInterval: r.FlushInterval, WhenFull: r.whenFull,
		},
		BufferBytes: r.BufferBytes, CrashDir: r.CrashDir,
		Deliver: deliver.Options{
			Retry: r.Retry, Breaker: r.Breaker, Handler: r.ErrorHandler, PendingLimit: r.PendingLimit, HandlerFirst: true,
			DeadLetter: r.DeadLetter, Spill: r.Spill,
		},
		FallbackFile: r.FallbackFile, DeadLetterFile: r.DeadLetterFile,
		SpoolDir: r.SpoolDir, Spool: spool.Options{MaxBytes: r.SpoolBytes, Sync: r.SpoolSync},
		CloseTimeout: r.CloseTimeout, OnError: r.OnError,
	}
}

// codecFor returns the codec of records stored by an earlier process: Forward entries, or a codec
// of package encode; nil if the content type is unknown.
func codecFor(contentType string, _ uint32) batch.Codec {
	if contentType == entryType {
		return Codec()
	}
	c, _ := encode.CodecFor(contentType)
	return c
}

// Encoder returns the encoder for the records of s, with MessageKey, Errors, IntegerTime and
// TimeFields of its Config. Records have the tag Config.Tag. [NewEncoder] returns other encoders.
func (s *Sink) Encoder() encode.Encoder { return s.enc }

// Output returns s as an output of a forebay.Route, for records at level and above. Closing the
// Router closes s. To keep s open, use forebay.Output.
func (s *Sink) Output(level slog.Leveler, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.OutputCloser(level, s, opts...)
}

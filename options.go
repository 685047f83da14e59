package forebay

import (
	"context"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/redact"
)

// defaultBusyTimeout is how long a caller waits for a write to a direct output
// that does not end.
const defaultBusyTimeout = 250 * time.Millisecond

// An Option configures a [Router]. Outputs are options, alone or in a [Route]. Others are
// [OnError], [BusyTimeout], [Context], [Sample], [SyncLevel], [CloseOnExit], and those
// that keep secrets out of the log: [RedactKeys], [RedactPaths], [RedactPattern] and
// [ReplaceAttr].
type Option interface{ applyRouter(*config) }

// An OutputOption configures one output. [Level], [Name], [Encoder] and [OnError] are for
// all outputs; [Spool], [CrashSafe], [WhenFull], [Buffer] and [Delivery] for those with
// memory of their own, which are all but [Output] and [OutputCloser]; [BusyTimeout] for
// these two; [Rotate], [RotateEvery] and [Compress] for [File]. Packages with outputs of
// their own have further ones. If one is given twice, the last counts.
type OutputOption interface{ applyOutput(*OutputSpec) }

// A CommonOption can be given to [NewRouter], where it holds for all outputs, or
// to one output.
type CommonOption interface {
	Option
	OutputOption
}

// config is what the options of NewRouter come to.
type config struct {
	routes   []routeSpec
	onError  func(batch.Event)
	busy     time.Duration
	contexts []contextFunc
	redact   redact.Config
	onExit   bool
	samples  []sample
	syncs    slog.Level // from here on callers wait for delivery
}

// A routeSpec is a Route, or an output that was given without one.
type routeSpec struct {
	enc     encode.Encoder
	outputs []OutputSpec
	alone   bool // an output without a Route
}

type optionFunc func(*config)

func (f optionFunc) applyRouter(c *config) { f(c) }

// Route adds a route. enc encodes each record once, and every output whose level admits
// the record gets the result. With several routes each of them calls LogValue, String
// and the methods of errors anew. A Router needs at least one route.
func Route(enc encode.Encoder, outputs ...OutputSpec) Option {
	return optionFunc(func(c *config) { c.routes = append(c.routes, routeSpec{enc: enc, outputs: outputs}) })
}

type contextFunc = func(ctx context.Context, dst []slog.Attr) []slog.Attr

// Context makes the router ask fn for attributes of the context of each record. fn
// appends to dst the attributes that ctx carries, such as a trace id, and returns the
// result. It must not keep dst. ctx may be nil.
//
// The attributes stand before those of the call and outside of all groups: a trace id is
// trace_id, whatever group is open. Context may be given several times. If fn panics, the
// record is logged without the attributes of fn; if fn calls runtime.Goexit, also without
// those of the functions after it.
func Context(fn func(ctx context.Context, dst []slog.Attr) []slog.Attr) Option {
	return optionFunc(func(c *config) { c.contexts = append(c.contexts, fn) })
}

// Sample thins out storms. Of the records of loggers of one name ([Logger.Named]) that have
// the same message and a level from level to below level+4, the first ones of each second
// are logged, and then every every-th one (0: none). It cannot tell a storm from records
// that share a message by design, such as those of accesslog. A record that follows others that were left out has the attribute
// "repeated" with their number. If none follows, the number of the last ones is a record of
// its own, with the level and the message, the name of the logger, and "repeated": after one
// to two seconds without that message, or when the Router is flushed or closed. Records left
// out are counted as dropped{sampled} by each output that would have taken them. Sample may
// be given for several levels.
//
// What is remembered of a message takes 40 bytes, and 4096 messages are remembered for
// each Sample; of more, some are logged more often.
func Sample(level slog.Level, first, every int) Option {
	return optionFunc(func(c *config) { c.samples = append(c.samples, sample{level: level, first: first, every: every}) })
}

// SyncLevel makes callers wait until records of level and above are delivered, at most
// 250 ms, and not at all for an output whose circuit breaker is open. The default is that
// none wait, except log.Fatal and log.Panic of the standard log after slog.SetDefault.
func SyncLevel(level slog.Level) Option {
	return optionFunc(func(c *config) { c.syncs = level })
}

// CloseOnExit makes [Exit] close the router. The router is then kept in memory
// until it is closed.
func CloseOnExit() Option {
	return optionFunc(func(c *config) { c.onExit = true })
}

// OnError sets the function that is told of transitions: the first failure of an
// output, its recovery, an output that is stuck, an encoder that fails. fn runs on a
// goroutine of its own behind a bounded queue, so it may block, panic, and log into this
// very router. Given to an output, fn is told of that output only. The default writes a
// line to standard error; for silence give a function that does nothing.
//
// An output made with [Output] or [OutputCloser] whose writer is a deliver.Output reports
// the failures of its destination to the OnError of that, not to fn.
func OnError(fn func(batch.Event)) CommonOption { return onError(fn) }

type onError func(batch.Event)

func (f onError) applyRouter(c *config)     { c.onError = f }
func (f onError) applyOutput(o *OutputSpec) { o.onError = f }

// Forever is the BusyTimeout of callers who would rather wait than lose a record.
const Forever time.Duration = math.MaxInt64

// BusyTimeout sets how long a caller waits for a direct output that is stuck in
// one Write; it must be positive. Later callers do not wait at all until that Write ends:
// their records count as dropped{busy}. The default is 250 ms: one Write of 400 ms costs a
// service with 1,000 records a second the 400 that come meanwhile, and no call more than
// 250 ms. With [Forever] none is lost, and calls take as long as the destination does.
func BusyTimeout(d time.Duration) CommonOption { return busyTimeout(d) }

type busyTimeout time.Duration

func (d busyTimeout) applyRouter(c *config)     { c.busy = time.Duration(d) }
func (d busyTimeout) applyOutput(o *OutputSpec) { o.busy, o.busySet = time.Duration(d), true }

// Name sets the output's name in stats, reports and events. Two outputs cannot
// have one name. The default is what the output is, such as "console", "file:app.log" or
// "loki", with #2 for the second one. For [Output] it is what the writer's method Name
// returns, or the writer's type.
func Name(name string) OutputOption { return outputName(name) }

type outputName string

func (n outputName) applyOutput(o *OutputSpec) { o.name = string(n) }

// An OutputSpec describes one output of a Router. [Console], [File], [Writer], [To] and
// the functions To of packages loki, fluent and netsink make one, and so do [Output] and
// [OutputCloser]. It is an [Option] itself: given to [New] or [NewRouter] without a
// Route, it has the encoder of its option [Encoder], or a default. Outputs with the same
// encoder share the result.
type OutputSpec struct {
	kind     string // what made it, "forebay.File"; "" for Output
	level    slog.Leveler
	levelNil bool // Level(nil)
	w        io.Writer
	closes   bool
	name     string
	enc      encode.Encoder
	encSet   bool
	onError  func(batch.Event)
	busy     time.Duration
	busySet  bool
	nilOpt   bool

	driver   driver    // nil: w is given
	settings []setting // for the driver

	events *reporter // set by the builder
}

func (o OutputSpec) applyRouter(c *config) {
	c.routes = append(c.routes, routeSpec{enc: o.enc, outputs: []OutputSpec{o}, alone: true})
}

func newSpec(o OutputSpec, opts []OutputOption) OutputSpec {
	for _, opt := range opts {
		if opt == nil {
			o.nilOpt = true
			continue
		}
		opt.applyOutput(&o)
	}
	return o
}

// Output is an output that takes records from level on (nil: slog.LevelInfo) and
// writes them to w, which stays open when the router is closed. The level may
// change at any time, as a *slog.LevelVar does; httpops.Level makes an
// http.Handler of one.
//
// A w with a method Encoder() encode.Encoder brings the encoder of an output that stands in
// no Route and has no option [Encoder].
//
// A w with a method WriteRecord(p []byte, m batch.Meta) error is a buffered output, and
// that method is called. If w waits without end when it is full (slab.Block), a
// destination that hangs also holds the caller, who then logs to no other output; with
// the default (slab.BlockFor) that ends after one timeout.
//
// Any other w is a direct output: each record is one Write in the calling goroutine.
// Writes are serialised, also when w is given to several outputs. For this, the type of
// w must be comparable: give a pointer instead of a function or a struct with slices. w
// must not keep p.
//
// A direct output finishes short writes. A write that fails is not repeated, and the
// record counts as dropped{failed}. If a part of the record was written, the rest is
// tried once more. If that fails too, the next record begins with a newline (where
// records end with one), so that only the torn record is damaged.
func Output(level slog.Leveler, w io.Writer, opts ...OutputOption) OutputSpec {
	return newSpec(OutputSpec{level: level, w: w}, opts)
}

// OutputCloser is like [Output], and [Router.Close] closes wc.
func OutputCloser(level slog.Leveler, wc io.WriteCloser, opts ...OutputOption) OutputSpec {
	o := Output(level, wc, opts...)
	o.closes = true
	return o
}

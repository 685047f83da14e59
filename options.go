package forebay

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// defaultBusyTimeout is how long a caller waits for a write to a direct output
// that does not end.
const defaultBusyTimeout = 250 * time.Millisecond

// An Option configures a [Router]. The options are [Route], [OnError],
// [BusyTimeout], [Context] and [CloseOnExit].
type Option interface{ applyRouter(*config) }

// An OutputOption configures one output. The options are [Name], [OnError] and
// [BusyTimeout].
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
	onExit   bool
}

type routeSpec struct {
	enc     encode.Encoder
	outputs []OutputSpec
}

type optionFunc func(*config)

func (f optionFunc) applyRouter(c *config) { f(c) }

// Route adds a route. enc encodes each record once, and every output whose level admits
// the record gets the result. With several routes each of them calls LogValue, String
// and the methods of errors anew. A Router needs at least one route.
func Route(enc encode.Encoder, outputs ...OutputSpec) Option {
	return optionFunc(func(c *config) { c.routes = append(c.routes, routeSpec{enc, outputs}) })
}

type contextFunc = func(ctx context.Context, dst []slog.Attr) []slog.Attr

// Context makes the router ask fn for attributes of the context of each record. fn
// appends to dst the attributes that ctx carries, such as a trace id, and returns the
// result. It must not keep dst. ctx may be nil.
//
// The attributes stand before those of the call, in the group that is open. Context
// may be given several times. If fn panics, the record is logged without the attributes
// of fn; if fn calls runtime.Goexit, also without those of the functions after it.
func Context(fn func(ctx context.Context, dst []slog.Attr) []slog.Attr) Option {
	return optionFunc(func(c *config) { c.contexts = append(c.contexts, fn) })
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
// A buffered output reports its own failures: see its OnError.
func OnError(fn func(batch.Event)) CommonOption { return onError(fn) }

type onError func(batch.Event)

func (f onError) applyRouter(c *config)     { c.onError = f }
func (f onError) applyOutput(o *OutputSpec) { o.onError = f }

// BusyTimeout sets how long a caller waits for a direct output that is stuck in
// one Write; it must be positive. The default is 250 ms.
func BusyTimeout(d time.Duration) CommonOption { return busyTimeout(d) }

type busyTimeout time.Duration

func (d busyTimeout) applyRouter(c *config)     { c.busy = time.Duration(d) }
func (d busyTimeout) applyOutput(o *OutputSpec) { o.busy, o.busySet = time.Duration(d), true }

// Name sets the output's name in stats, reports and events. Two outputs cannot
// have one name. The default is the writer's own, if it has a method Name, or
// its type.
func Name(name string) OutputOption { return outputName(name) }

type outputName string

func (n outputName) applyOutput(o *OutputSpec) { o.name = string(n) }

// An OutputSpec describes one output of a [Route]. Make it with [Output] or
// [OutputCloser].
type OutputSpec struct {
	level   slog.Leveler
	w       io.Writer
	closes  bool
	name    string
	onError func(batch.Event)
	busy    time.Duration
	busySet bool
	nilOpt  bool
}

// Output is an output that takes records from level on (nil: slog.LevelInfo) and
// writes them to w, which stays open when the router is closed. The level may
// change at any time, as a *slog.LevelVar does; package levelhttp makes an
// http.Handler of one.
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
	o := OutputSpec{level: level, w: w}
	for _, opt := range opts {
		if opt == nil {
			o.nilOpt = true
			continue
		}
		opt.applyOutput(&o)
	}
	return o
}

// OutputCloser is like [Output], and [Router.Close] closes wc.
func OutputCloser(level slog.Leveler, wc io.WriteCloser, opts ...OutputOption) OutputSpec {
	o := Output(level, wc, opts...)
	o.closes = true
	return o
}

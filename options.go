package forebay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"reflect"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/redact"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/slab"
)

// defaultBusyTimeout limits the time a caller waits for a direct output whose write does not
// return.
const defaultBusyTimeout = 250 * time.Millisecond

// An Option configures a [Router]. Outputs are options, alone or in a [Route]. The other
// options are [OnError], [BusyTimeout], [Context], [Durations], [Sample], [SyncLevel], [CloseOnExit], and
// those for redaction: [RedactKeys], [RedactPaths], [RedactPattern] and [ReplaceAttr].
type Option interface{ applyRouter(*config) }

// An OutputOption configures one output. [Level], [Name], [Encoder] and [OnError] apply to all
// outputs. [Spool], [CrashSafe], [WhenFull], [Buffer] and [Delivery] apply to outputs with
// memory: to all except direct outputs. [BusyTimeout] applies to direct outputs only. [Direct]
// and [CloseWriter] apply to [Writer]. [Rotate], [RotateEvery] and [Compress] apply to [File].
// Packages with outputs have additional options. If an option is given twice, the last one
// wins.
type OutputOption interface{ applyOutput(*OutputSpec) }

// A CommonOption may be given to [NewRouter], where it applies to all outputs, or to a single
// output.
type CommonOption interface {
	Option
	OutputOption
}

// config collects the options of NewRouter.
type config struct {
	routes   []routeSpec
	onError  func(batch.Event)
	busy     time.Duration
	contexts []contextFunc
	redact   redact.Config
	onExit   bool
	samples  []sample
	duration string // format of durations; "": the format of each encoder
	// Callers wait for the delivery of records at or above syncLevel; see SyncLevel.
	syncLevel slog.Level
}

// A routeSpec is a Route, or an output that was given without one.
type routeSpec struct {
	enc      encode.Encoder
	outputs  []OutputSpec
	unrouted bool // the spec is an output without a Route
}

// An optionFunc is an Option for the Router, not for an output.
type optionFunc func(*config)

func (f optionFunc) applyRouter(c *config) { f(c) }

// Route adds a route. enc encodes each record once, and every output whose level admits the record
// receives the result. If there are several routes, each of them calls LogValue, String and Error
// of the values. A Router needs at least one route or output.
func Route(enc encode.Encoder, outputs ...OutputSpec) Option {
	return optionFunc(func(c *config) { c.routes = append(c.routes, routeSpec{enc: enc, outputs: outputs}) })
}

// A contextFunc is the argument of the option Context.
type contextFunc = func(ctx context.Context, dst []slog.Attr) []slog.Attr

// Context adds attributes that fn derives from the context of each log call. fn appends the
// attributes of ctx, such as a trace id, to dst and returns the result. It must not retain dst. ctx
// may be nil. fn may be called from multiple goroutines.
//
// The attributes precede the arguments of the call and are outside all groups: a trace id has the
// key trace_id even if a group is open. Context may be given several times; by default no
// attributes are added. If fn panics, the record is logged without the attributes of fn. If fn
// calls runtime.Goexit, the attributes of the functions that are called after it are missing, too.
func Context(fn func(ctx context.Context, dst []slog.Attr) []slog.Attr) Option {
	return optionFunc(func(c *config) { c.contexts = append(c.contexts, fn) })
}

// Sample limits bursts of a message. It counts the records that have the same logger name
// ([Logger.Named]), the same message, and a level in the range from level to level+3. With the
// arguments first=10 and every=100, the first 10 records of each second are logged, and after them
// every 100th record. If the argument every is 0, no further records are logged. Sample cannot
// distinguish a burst from records that share a message by design, such as those of accesslog.
//
// If records were left out, the next logged record has the attribute "repeated" with their number.
// If no record follows within one to two seconds, a separate record with the level, the message,
// the name of the logger and "repeated" is logged. It is logged earlier if the Router is flushed or
// closed. Records left out are counted as dropped{sampled} by each output that would have accepted
// them.
//
// Sample may be given for several levels. By default all records are logged. Each Sample
// tracks 4096 messages, at 40 bytes each; with more messages, some are logged more often.
func Sample(level slog.Level, first, every int) Option {
	return optionFunc(func(c *config) { c.samples = append(c.samples, sample{level: level, first: first, every: every}) })
}

// SyncLevel makes callers wait until records of the given level and above are delivered, at most
// 250 ms. They do not wait for an output whose circuit breaker is open. By default no caller waits.
// Exceptions are log.Fatal and log.Panic of the standard log package after slog.SetDefault, whose
// callers wait whatever the level.
func SyncLevel(level slog.Level) Option {
	return optionFunc(func(c *config) { c.syncLevel = level })
}

// CloseOnExit makes [Exit] close the router. Exit needs a reference to the router, so the garbage
// collector cannot free the router before it is closed. By default, Exit does not close a Router;
// [New] sets CloseOnExit.
func CloseOnExit() Option {
	return optionFunc(func(c *config) { c.onExit = true })
}

// Durations sets the format of durations in all outputs: "ns" (1500000000), "text" (1.5s) or
// "seconds" (1.5). An encoder made with encode.Options.Duration keeps that format. By
// default durations are integer nanoseconds, as in slog's JSON, and text only in
// encode.Console.
func Durations(form string) Option {
	return optionFunc(func(c *config) { c.duration = form })
}

// OnError sets the function that receives events about transitions: the first failure of an
// output, its recovery, an output that is stuck, an encoder that fails. fn runs in a separate
// goroutine that reads a bounded queue, so it may block, panic, and log to the same router. If
// OnError is given to an output, fn receives only the events of that output. The default
// writes a line to standard error; to disable it, pass a function that does nothing.
//
// If the writer of [Writer] is a deliver.Output, failures of its destination go to the OnError
// of that deliver.Output, not to fn.
func OnError(fn func(batch.Event)) CommonOption { return onError(fn) }

// onError implements the option OnError.
type onError func(batch.Event)

func (f onError) applyRouter(c *config) { c.onError = f }

func (f onError) applyOutput(o *OutputSpec) { o.onError = f }

// Forever is a [BusyTimeout] that never drops a record: callers wait until the write returns.
const Forever time.Duration = math.MaxInt64

// BusyTimeout sets how long a caller waits for a direct output that is stuck in one Write. It must
// be positive. If the Write takes longer, callers stop waiting, and all records logged until the
// Write returns are counted as dropped{busy}. With the default of 250 ms, no call is delayed by
// more than 250 ms. If a Write takes 400 ms, a service with 1,000 records a second loses the 400
// records logged during that time. With [Forever] no record is lost, and a call waits as long as
// the Write.
func BusyTimeout(d time.Duration) CommonOption { return busyTimeout(d) }

// busyTimeout implements the option BusyTimeout.
type busyTimeout time.Duration

func (d busyTimeout) applyRouter(c *config) { c.busy = time.Duration(d) }

func (d busyTimeout) applyOutput(o *OutputSpec) { o.busy, o.busySet = time.Duration(d), true }

// Name sets the name of the output in stats, reports and events. Names must be unique. The default
// is the kind of the output, such as "console", "file:app.log" or "loki". A direct output, and a
// writer with a method WriteRecord, is named by the writer's method Name, or else by the writer's
// type. If a default name is in use, #2 is appended.
func Name(name string) OutputOption { return outputName(name) }

// outputName implements the option Name.
type outputName string

func (n outputName) applyOutput(o *OutputSpec) { o.name = string(n) }

// An OutputSpec describes one output of a Router. [Console], [File], [Writer], [To] and the
// functions To of other packages return one. It is an [Option]: if it is given to [New] or
// [NewRouter] without a Route, it has the encoder of its option [Encoder] or the default encoder.
// Outputs with the same encoder share its result.
type OutputSpec struct {
	kind     string // the function that made it, such as "forebay.File"
	level    slog.Leveler
	levelNil bool      // the argument of the option Level was nil
	w        io.Writer // nil if driver is set
	direct   bool      // the option Direct
	closes   bool      // w is closed with the Router
	name     string
	enc      encode.Encoder
	encSet   bool // the option Encoder was used
	onError  func(batch.Event)
	busy     time.Duration
	busySet  bool // the option BusyTimeout was used
	nilOpt   bool // at least one of the options is nil

	driver   driver    // opens the destination and sets w; nil if w is given
	settings []setting // options for the driver, and for memory and delivery

	events *reporter // receives the events of the output; set by builder.prepare
}

// applyRouter adds o as an output without a Route.
func (o OutputSpec) applyRouter(c *config) {
	c.routes = append(c.routes, routeSpec{enc: o.enc, outputs: []OutputSpec{o}, unrouted: true})
}

// newSpec applies opts to o.
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

// A setting is an option that changes the driver's configuration, or the options of memory and
// delivery.
type setting struct {
	name string
	set  any // a func(*C) error, where C may be deliver.OutputOptions
}

func (s setting) applyOutput(o *OutputSpec) { o.settings = append(o.settings, s) }

// A driver opens the destination of an output.
type driver interface {
	open(settings []setting, s *Setup) (deliver.Destination, []error)
}

// A driverOf is the driver of an output whose configuration has the type C.
type driverOf[C any] struct {
	conf  C
	openf func(*C, *Setup) (deliver.Destination, error)
}

// fault adds the name of the option to each error that err joins. It returns nil if err is nil.
func (s setting) fault(err error) error {
	var errs []error
	for _, e := range joined(err) {
		errs = append(errs, fmt.Errorf("%s: %w", s.name, e))
	}
	return errors.Join(errs...)
}

// joined returns the errors that err joins, or err itself if it was not made by errors.Join.
func joined(err error) (errs []error) {
	if err == nil {
		return nil
	}
	if reflect.TypeOf(err) != reflect.TypeOf(errors.Join(err)) {
		return []error{err}
	}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		errs = append(errs, joined(e)...)
	}
	return errs
}

// Level sets the lowest level that the output accepts. l may change at any time, as a
// *slog.LevelVar does. The default is the level of the logger: slog.LevelInfo, or the level
// set with [Router.SetLevel].
func Level(l slog.Leveler) OutputOption { return outputLevel{l} }

// outputLevel implements the option Level.
type outputLevel struct{ l slog.Leveler }

func (l outputLevel) applyOutput(o *OutputSpec) { o.level, o.levelNil = l.l, l.l == nil }

// Encoder sets the format of the records. The default is JSON; for [Console] it is
// human-readable text, and for loki.To and fluent.To the format of their servers. The outputs
// of a Route use the encoder of the Route and must not have this option.
func Encoder(enc encode.Encoder) OutputOption { return outputEncoder{enc} }

// outputEncoder implements the option Encoder.
type outputEncoder struct{ enc encode.Encoder }

func (e outputEncoder) applyOutput(o *OutputSpec) { o.enc, o.encSet = e.enc, true }

// Spool stores records in dir while the destination is down or memory is full, and the records that
// Close could not deliver. They are delivered first when the destination is available again, or at
// the next start. If the policy of [WhenFull] is not "spill", the spool is used only in outages
// that the circuit breaker detects. A destination that hangs then fills memory, and records are
// dropped. The directory is created if it is missing, and only one output may use it. The default
// limit is 1 GiB; use [Delivery] to change it. By default an output has no spool.
func Spool(dir string) OutputOption {
	return deliverySetting("forebay.Spool", func(o *deliver.OutputOptions) error {
		o.SpoolDir = dir
		return makeDir(dir)
	})
}

// CrashSafe makes records survive a crash of the process as soon as the log call has returned.
// The memory of the output is mapped from a file in dir, and the next start delivers the
// records left there. The directory is created if it is missing, and only one output may use
// it; a tmpfs is recommended. CrashSafe works on Linux and macOS; on other systems a warning
// is reported to OnError and records are kept in ordinary memory. The default is ordinary
// memory. See slab.Crash.
func CrashSafe(dir string) OutputOption {
	return deliverySetting("forebay.CrashSafe", func(o *deliver.OutputOptions) error {
		o.CrashDir, o.Slab.Crash = dir, nil
		return makeDir(dir)
	})
}

// makeDir creates dir with mode 0700 if it is missing.
func makeDir(dir string) error {
	if dir == "" {
		return errors.New("the directory is empty; give its path")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return vfs.DirError(dir, err)
	}
	return nil
}

// WhenFull sets the behavior of a call when the memory of the output is full because its
// destination is slow or down:
//
//   - "block-for=250ms" waits at most that long and then drops the record.
//   - "block" waits until there is room.
//   - "drop-newest" and "drop-oldest" do not wait.
//   - "spill" moves the oldest records to the [Spool] and waits for the disk, at most 5 s.
//
// After one call has waited for the whole time without success, later calls with "block-for" and
// "spill" give up at once until memory is freed. The default is "spill" for an output with a Spool,
// and "block-for=250ms" for others. Dropped records are counted.
func WhenFull(policy string) OutputOption {
	return deliverySetting("forebay.WhenFull", func(o *deliver.OutputOptions) (err error) {
		o.Slab.WhenFull, err = slab.ParseWhenFull(policy)
		return err
	})
}

// Buffer sets the memory of the output in bytes. The default is 512 KiB for the outputs of this
// package and netsink, and 4 MiB for those of other packages. slab.Plan computes the size that
// absorbs a given stall.
func Buffer(bytes int) OutputOption {
	return deliverySetting("forebay.Buffer", func(o *deliver.OutputOptions) error {
		if least := 2 * layout.MinSlabBytes; bytes < least {
			return fmt.Errorf("%d bytes are too few; give %d or more", bytes, least)
		}
		o.BufferBytes = bytes
		return nil
	})
}

// Delivery calls the function set with the options of memory and delivery. It is for everything
// without a separate option: retry, circuit breaker, fallback, dead letters, timeouts. NewRouter
// calls these functions in the order of the options. Fields that remain zero have the default of
// the output.
func Delivery(set func(*deliver.OutputOptions)) OutputOption {
	return deliverySetting("forebay.Delivery", func(o *deliver.OutputOptions) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(o)
		return nil
	})
}

// deliverySetting returns an option that changes the options of memory and delivery. name is its
// name in errors.
func deliverySetting(name string, set func(*deliver.OutputOptions) error) OutputOption {
	return setting{name, set}
}

// Configure calls set with the configuration of the output's driver. It is for everything without a
// separate option, such as authentication, TLS and limits:
//
//	loki.To("http://localhost:3100", forebay.Configure(func(c *loki.Config) { c.Tenant = "shop" }))
//
// C is the type Config of the package that made the output. Fields that the function does not
// change have their documented defaults.
func Configure[C any](set func(*C)) OutputOption {
	return DriverOption("forebay.Configure", func(c *C) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(c)
		return nil
	})
}

// A sample holds the arguments of Sample.
type sample struct {
	level        slog.Level
	first, every int
}

// contains reports whether the sample applies to records of level l.
func (s *sample) contains(l slog.Level) bool { return l >= s.level && l < s.level+levelStep }

// fault describes why s is invalid or conflicts with an earlier sample. It returns "" if there is
// no fault.
func (s *sample) fault(earlier []sample) string {
	if s.first < 0 || s.every < 0 {
		return fmt.Sprintf("first %d and every %d are not valid counts; use 0 or more", s.first, s.every)
	}
	if s.first == 0 && s.every == 0 {
		return "it leaves out every record; give at least one count, or raise the level of the outputs"
	}
	for _, o := range earlier {
		if d := s.level - o.level; d < levelStep && -d < levelStep {
			return fmt.Sprintf("its levels overlap those of Sample(%v); give levels that are 4 apart", o.level)
		}
	}
	return ""
}

// levelStep is the distance between two levels of slog. A [Sample] applies to the levels from its
// level up to, but not including, level+levelStep.
const levelStep = slog.LevelInfo - slog.LevelDebug

// isNil reports whether v is nil or holds a nil pointer, map, function, channel or slice.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice, reflect.Interface:
		return r.IsNil()
	}
	return false
}

// A Setup is the configuration of an output while NewRouter opens it. The function passed to
// [Driver] completes it.
type Setup struct {
	// Encoder is the encoder set by the option Encoder or by the Route, or nil. A driver
	// with a fixed record format sets its encoder here. If Encoder remains nil, the output
	// writes JSON.
	Encoder encode.Encoder
	// OutputOptions are the options of memory and delivery. The options given to the output are
	// applied after the function passed to Driver has returned. Fields that remain zero get the
	// default of the destination (Defaults of deliver.Traits).
	deliver.OutputOptions

	// claims registers a path, see the method claim. It is nil if paths need not be registered.
	claims func(what, path string) error
}

// DriverOption returns an option for outputs whose [Driver] has a configuration of type C. name is
// the name of the option in errors, such as "loki.Label". NewRouter returns an error if the option
// is given to another output.
func DriverOption[C any](name string, set func(*C) error) OutputOption {
	return setting{name, set}
}

// writerFault returns an error if Direct or CloseWriter is given but does not apply to o.
func (o *OutputSpec) writerFault() error {
	_, closer := o.w.(io.Closer)
	_, ends := o.w.(shutdowner)
	switch {
	case o.direct && o.kind != writerKind:
		return errors.New("Direct does not apply to it; use Writer(w, Direct())")
	case o.closes && o.kind != writerKind:
		return errors.New("CloseWriter does not apply to it; leave it out")
	case o.closes && o.driver == nil && !isNil(o.w) && !closer && !ends:
		return errNoClose(o.w)
	}
	return nil
}

// errNoClose is the error for the option CloseWriter with a writer that has no method Close.
func errNoClose(w io.Writer) error {
	return fmt.Errorf("CloseWriter: the writer (%T) has no method Close; leave it out", w)
}

// writerKind is the kind of the outputs made by Writer.
const writerKind = "forebay.Writer"

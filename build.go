package forebay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/redact"
	"github.com/forebay-log/forebay/internal/values"
)

// NewRouter returns a Router with the given outputs. If options are invalid, the error joins all
// faults, each with the position of the option, the reason and a remedy. In that case NewRouter
// closes all outputs that it has opened; files and directories that it has created remain.
func NewRouter(opts ...Option) (*Router, error) {
	cfg := config{busy: defaultBusyTimeout, syncLevel: math.MaxInt}
	b := builder{what: "make router", names: map[string]string{}, paths: map[string]string{}, writers: map[any]*output{}}
	for i, opt := range opts {
		if opt == nil {
			b.fault(fmt.Sprintf("option %d", i+1), "it is nil; leave it out")
			continue
		}
		opt.applyRouter(&cfg)
	}
	c := b.core(&cfg)
	if len(b.faults) > 0 {
		b.undo(c)
		return nil, errors.Join(b.faults...)
	}
	if cfg.onExit {
		exitList.add(c)
	}
	c.router = &Router{h: handler{core: c, levels: c.root, scopes: b.scopes}}
	return c.router, nil
}

// A builder creates the core of a Router from a config, and collects the faults of the config.
type builder struct {
	what    string // name of the operation, for errors
	bare    bool   // the output is opened by Open, without a Router
	faults  []error
	names   map[string]string // maps the name of an output to the position of its option
	paths   map[string]string // maps a file or directory to the position of the output that uses it
	writers map[any]*output   // maps a writer to the first output with this writer
	scopes  []encode.Scope
	busy    []time.Duration // BusyTimeout of each output, in the order of core.outputs

	duration string // format of durations in all outputs; "" leaves the choice to each encoder
}

// fault adds an error about an option to b.faults. place names the option by its position in the
// arguments, such as "output 1".
func (b *builder) fault(place, format string, args ...any) {
	b.faults = append(b.faults, fmt.Errorf("forebay: cannot %s: %s: %w", b.what, place, fmt.Errorf(format, args...)))
}

// core creates the core for cfg. After a fault the core is incomplete, and the caller must pass it
// to undo.
func (b *builder) core(cfg *config) *core {
	c := &core{done: make(chan struct{}), bursts: bursts{writing: make(chan struct{}, 1)}}
	c.events = newReporter(cfg.onError)
	c.reporters = []*reporter{c.events}
	if cfg.busy <= 0 {
		b.fault("BusyTimeout", "%v is not positive; the default is %v", cfg.busy, defaultBusyTimeout)
	}
	if b.duration = cfg.duration; b.duration != "" && !slices.Contains(values.DurationForms, b.duration) {
		b.fault("Durations", "%q is not one of %s", b.duration, strings.Join(values.DurationForms, ", "))
	}
	for i, fn := range cfg.contexts {
		if fn == nil {
			b.fault(fmt.Sprintf("Context %d", i+1), "the function is nil; leave it out")
		}
	}
	c.contexts = cfg.contexts
	c.syncLevel = cfg.syncLevel
	for i := range cfg.samples {
		if why := cfg.samples[i].fault(cfg.samples[:i]); why != "" {
			b.fault(fmt.Sprintf("Sample(%v)", cfg.samples[i].level), "%s", why)
		}
		c.samples = append(c.samples, newSampler(cfg.samples[i]))
	}
	rules, faults := redact.New(cfg.redact)
	for _, err := range faults {
		b.fault("redaction", "%w", err)
	}
	c.redact = rules
	if len(cfg.routes) == 0 {
		b.fault("routes", "there is none; give an output, such as Console(os.Stderr)")
	}
	b.givenNames(cfg)
	shared := map[any]*route{} // maps an encoder to the route that outputs without a Route share
	routed, unrouted := 0, 0
	for i := range cfg.routes {
		spec := cfg.routes[i]
		spec.outputs = slices.Clone(spec.outputs)
		if spec.unrouted {
			unrouted++
			b.addUnrouted(c, cfg, &spec.outputs[0], shared, fmt.Sprintf("output %d", unrouted))
		} else {
			routed++
			b.route(c, cfg, &spec, fmt.Sprintf("route %d", routed))
		}
	}
	if len(b.faults) > 0 {
		return c
	}
	b.defaultNames(c)
	b.connect(c, b.busy)
	c.plan()
	return c
}

// undo closes all outputs that were opened for c. It is called if an option is invalid.
func (b *builder) undo(c *core) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// If an option is invalid, connect is not called, and no output is marked as the first one
	// with its writer. runEach skips outputs without this mark, so undo marks all of them.
	for _, o := range c.outputs {
		o.first = true
	}
	c.runEach(ctx, ctx, func(o *output) bool { return o.opened }, (*output).end)
}

// givenNames registers the names given with the option Name. It runs before default names are
// chosen, so that a default name does not take a given one.
func (b *builder) givenNames(cfg *config) {
	routed, unrouted := 0, 0
	for _, r := range cfg.routes {
		place := ""
		if r.unrouted {
			unrouted++
			place = fmt.Sprintf("output %d", unrouted)
		} else {
			routed++
		}
		for k, o := range r.outputs {
			if !r.unrouted {
				place = fmt.Sprintf("route %d, output %d", routed, k+1)
			}
			place = o.place(place)
			if o.name == "" {
				continue
			}
			if other, dup := b.names[o.name]; dup {
				b.fault(place, "the name %q is already used by %s; give one of them another Name", o.name, other)
			}
			b.names[o.name] = place
		}
	}
}

// place returns the position of o for errors. It appends the name of the function that made o, as
// in "output 1 (forebay.File)".
func (o *OutputSpec) place(place string) string {
	if o.kind != "" {
		place += " (" + o.kind + ")"
	}
	return place
}

// route creates the route and the outputs of an option Route.
func (b *builder) route(c *core, cfg *config, spec *routeSpec, place string) {
	r, codec := b.encoder(c, spec.enc, place)
	if len(spec.outputs) == 0 {
		b.fault(place, "it has no output; give at least one, such as Console(os.Stderr)")
	}
	for k := range spec.outputs {
		out := &spec.outputs[k]
		place := out.place(fmt.Sprintf("%s, output %d", place, k+1))
		if out.encSet {
			b.fault(place, "it has the option Encoder, but it is in a Route, which has an encoder; give the output to New without a Route")
		}
		out.enc = spec.enc
		b.output(c, cfg, out, place, r, codec)
	}
}

// addUnrouted adds an output that was given without a Route. Outputs with equal encoders share
// one route. The map shared contains these routes by encoder.
func (b *builder) addUnrouted(c *core, cfg *config, spec *OutputSpec, shared map[any]*route, place string) {
	place = spec.place(place)
	b.prepare(c, spec, place)
	if spec.enc == nil && !spec.encSet {
		spec.enc = encoderOf(spec.w)
	}
	var r *route
	var codec batch.Codec
	// An encoder of a type that is not comparable, such as a func, cannot be a key of the map, so
	// its output gets a separate route.
	if comparable := !isNil(spec.enc) && reflect.ValueOf(spec.enc).Comparable(); comparable {
		if r = shared[spec.enc]; r == nil {
			r, codec = b.encoder(c, spec.enc, place)
			shared[spec.enc] = r
		}
	} else {
		r, codec = b.encoder(c, spec.enc, place)
	}
	b.output(c, cfg, spec, place, r, codec)
}

// encoderOf returns the encoder of an output without the option Encoder: the result of w.Encoder
// or, without that method, the default encoder.
func encoderOf(w io.Writer) (enc encode.Encoder) {
	if e, ok := w.(interface{ Encoder() encode.Encoder }); ok && !isNil(w) {
		_ = contain.Call(func() { enc = e.Encoder() })
	}
	if isNil(enc) {
		return defaultEncoder
	}
	return enc
}

// defaultEncoder encodes for all outputs without an encoder, so that they share a route.
var defaultEncoder = encode.JSON(nil)

// encoder adds a route that encodes with enc, and returns it with the codec of enc.
func (b *builder) encoder(c *core, enc encode.Encoder, place string) (*route, batch.Codec) {
	r := &route{}
	c.routes = append(c.routes, r)
	if isNil(enc) {
		b.fault(place, "the encoder is nil; give one, or leave it out for the default")
		return r, nil
	}
	e, err := inspect(b.durations(enc))
	if err != nil {
		b.fault(place, "the encoder does not work: %v", err)
	}
	if c.redact != nil && isRaw(e.codec) {
		b.fault(place, "the encoder copies lines unchanged, so they cannot be redacted; leave out the redaction options, or use encode.JSON")
	}
	b.scopes = append(b.scopes, e.scope)
	c.needsPC = c.needsPC || e.needsPC
	return r, e.codec
}

// encoderParts are the parts of an encoder that a route needs.
type encoderParts struct {
	scope   encode.Scope
	codec   batch.Codec
	needsPC bool
}

// inspect returns the parts of enc. It returns an error if enc panics or is invalid.
func inspect(enc encode.Encoder) (e encoderParts, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError{p}
		}
	}()
	e = encoderParts{enc.Scope(), enc.Codec(), enc.NeedsPC()}
	if isNil(e.scope) {
		return e, errors.New("its Scope is nil")
	}
	if v, ok := enc.(interface{ Validate() error }); ok {
		err = v.Validate()
	}
	return e, err
}

// durations returns enc with the format of the option Durations, if enc supports that option.
func (b *builder) durations(enc encode.Encoder) (out encode.Encoder) {
	d, ok := enc.(interface{ Durations(string) encode.Encoder })
	if b.duration == "" || !ok || isNil(enc) {
		return enc
	}
	defer func() {
		if recover() != nil { // inspect reports the panic
			out = enc
		}
	}()
	return d.Durations(b.duration)
}

// prepare checks the options of an output and opens it if it has a driver.
func (b *builder) prepare(c *core, spec *OutputSpec, place string) {
	if spec.nilOpt {
		b.fault(place, "an option is nil; leave it out")
	}
	if spec.levelNil || spec.level != nil && isNil(spec.level) {
		b.fault(place, "the level is a nil %T; give one such as slog.LevelInfo, or leave it out", spec.level)
	}
	if spec.encSet && isNil(spec.enc) {
		b.fault(place, "the encoder is nil; give one, or leave it out for the default")
		spec.enc, spec.encSet = nil, false
	}
	spec.events = c.events
	if spec.onError != nil {
		spec.events = newReporter(spec.onError)
		c.reporters = append(c.reporters, spec.events)
	}
	if err := spec.writerFault(); err != nil {
		b.fault(place, "%w", err)
	}
	if spec.driver != nil {
		if spec.busySet {
			b.fault(place, "BusyTimeout does not apply to it; see WhenFull")
		}
		b.open(spec, place)
		return
	}
	for _, s := range spec.settings {
		if _, ok := spec.w.(recorder); ok {
			b.fault(place, "%s does not apply to it, because its writer has memory; leave it out", s.name)
		} else {
			b.fault(place, "%s does not apply to it, because it writes in the caller; leave out Direct", s.name)
		}
	}
	if spec.busySet && spec.busy <= 0 {
		b.fault(place, "BusyTimeout %v is not positive; the default is %v", spec.busy, defaultBusyTimeout)
	}
	if isNil(spec.w) {
		b.fault(place, "the writer is nil; give one such as os.Stderr, or leave the output out")
	}
}

// output adds an output to the route r. codec is the codec of the route's encoder.
func (b *builder) output(c *core, cfg *config, spec *OutputSpec, place string, r *route, codec batch.Codec) {
	if spec.events == nil {
		b.prepare(c, spec, place)
	}
	if !spec.busySet {
		spec.busy = cfg.busy
	}
	o := &output{w: spec.w, name: spec.name, closes: spec.closes, opened: spec.driver != nil, events: spec.events}
	o.level = newThreshold(spec.level)
	b.busy = append(b.busy, spec.busy)
	r.outputs = append(r.outputs, o)
	c.outputs = append(c.outputs, o)
	if isNil(spec.w) {
		return
	}
	encoderType := contentType(codec)
	writerType, raw := writerContentType(spec.w)
	if encoderType != "" && writerType != "" && encoderType != writerType {
		b.fault(place, "the encoder writes %s, but the writer accepts %s", encoderType, writerType)
	} else if c.redact != nil && raw {
		b.fault(place, "the writer has encode.RawCodec, whose lines cannot be redacted; give it the Codec of the encoder, and write to it only through the Router")
	}
}

// writerContentType returns the content type that w accepts, or "" if it is unknown. raw reports
// whether w accepts lines of unknown content (encode.RawCodec).
func writerContentType(w io.Writer) (ct string, raw bool) {
	if cw, ok := w.(coded); ok {
		defer func() { _ = recover() }()
		codec := cw.Codec()
		ct, raw = contentType(codec), isRaw(codec)
	}
	return ct, raw
}

// isRaw reports whether c is encode.RawCodec, the codec of lines of unknown content.
func isRaw(c batch.Codec) bool { return c == encode.RawCodec() }

// contentType returns the content type of c, or "" if c is nil.
func contentType(c batch.Codec) string {
	if isNil(c) {
		return ""
	}
	return c.ContentType()
}

// defaultNames gives a default name to each output without the option Name.
func (b *builder) defaultNames(c *core) {
	for _, o := range c.outputs {
		if o.name != "" {
			continue
		}
		o.name = b.freeName(writerName(o.w))
		b.names[o.name] = "an output without a given name"
	}
}

// freeName returns base or, if another output has that name, base with a number appended.
func (b *builder) freeName(base string) string {
	name := base
	for i := 2; b.names[name] != ""; i++ {
		name = fmt.Sprintf("%s#%d", base, i)
	}
	return name
}

// writerName returns the default name of an output: the result of w.Name or, without that method,
// the type of w.
func writerName(w io.Writer) (name string) {
	name = strings.TrimPrefix(fmt.Sprintf("%T", w), "*")
	defer func() { _ = recover() }()
	if n, ok := w.(namer); ok {
		if s := n.Name(); s != "" {
			name = s
		}
	}
	return name
}

// connect determines which optional methods each output's writer has, and which outputs share a
// writer. busy is the BusyTimeout of each output.
func (b *builder) connect(c *core, busy []time.Duration) {
	for i, o := range c.outputs {
		var first *output
		if reflect.ValueOf(o.w).Comparable() {
			first = b.writers[o.w]
			if first == nil {
				b.writers[o.w] = o
			}
		}
		o.first = first == nil
		if first != nil {
			first.closes = first.closes || o.closes
			o.closes = false
		}
		if rec, ok := o.w.(recorder); ok {
			o.rec = rec
			o.account, _ = o.w.(accounter)
			continue
		}
		if first == nil {
			o.direct = newDirect(o.w, o.name, busy[i], o.events)
			continue
		}
		o.direct, o.shared, first.shared = first.direct, true, true
		o.direct.busy = min(o.direct.busy, busy[i])
	}
}

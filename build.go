package forebay

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// NewRouter returns a Router with the given routes. It starts no goroutine. The error
// joins all faults of the options. Each fault has its place, its reason and a remedy.
func NewRouter(opts ...Option) (*Router, error) {
	cfg := config{busy: defaultBusyTimeout}
	b := builder{names: map[string]string{}, writers: map[any]*output{}}
	for i, opt := range opts {
		if opt == nil {
			b.fault(fmt.Sprintf("option %d", i+1), "it is nil; leave it out")
			continue
		}
		opt.applyRouter(&cfg)
	}
	c := b.core(&cfg)
	if len(b.faults) > 0 {
		return nil, errors.Join(b.faults...)
	}
	if cfg.onExit {
		exitList.add(c)
	}
	return &Router{h: handler{core: c, scopes: b.scopes}}, nil
}

// builder makes a core of a config and collects the faults of the config.
type builder struct {
	faults  []error
	names   map[string]string // given name -> place
	writers map[any]*output   // writer -> first output with it
	scopes  []encode.Scope
	busy    []time.Duration // by output
}

func (b *builder) fault(place, format string, args ...any) {
	b.faults = append(b.faults, fmt.Errorf("forebay: cannot make router: %s: %w", place, fmt.Errorf(format, args...)))
}

func (b *builder) core(cfg *config) *core {
	c := &core{done: make(chan struct{})}
	c.events = newReporter(cfg.onError)
	c.reporters = []*reporter{c.events}
	if cfg.busy <= 0 {
		b.fault("BusyTimeout", "%v is not positive; the default is %v", cfg.busy, defaultBusyTimeout)
	}
	for i, fn := range cfg.contexts {
		if fn == nil {
			b.fault(fmt.Sprintf("Context %d", i+1), "the function is nil")
		}
	}
	c.contexts = cfg.contexts
	if len(cfg.routes) == 0 {
		b.fault("routes", "there is none; give at least one Route(encoder, Output(level, writer))")
	}
	for i := range cfg.routes {
		b.route(c, cfg, i)
	}
	if len(b.faults) > 0 {
		return nil
	}
	b.defaultNames(c)
	b.connect(c, b.busy)
	c.plan()
	return c
}

func (b *builder) route(c *core, cfg *config, i int) {
	spec := &cfg.routes[i]
	place := fmt.Sprintf("route %d", i+1)
	r := &route{}
	var codec batch.Codec
	if isNil(spec.enc) {
		b.fault(place, "the encoder is nil")
	} else {
		e, err := inspect(spec.enc)
		if err != nil {
			b.fault(place, "the encoder does not work: %v", err)
		}
		b.scopes = append(b.scopes, e.scope)
		codec = e.codec
		c.needsPC = c.needsPC || e.needsPC
	}
	if len(spec.outputs) == 0 {
		b.fault(place, "it has no output; give at least one Output(level, writer)")
	}
	for k := range spec.outputs {
		if out := &spec.outputs[k]; !out.busySet {
			out.busy = cfg.busy
		}
		o := b.output(c, &spec.outputs[k], fmt.Sprintf("%s, output %d", place, k+1), codec)
		b.busy = append(b.busy, spec.outputs[k].busy)
		r.outputs = append(r.outputs, o)
		c.outputs = append(c.outputs, o)
	}
	c.routes = append(c.routes, r)
}

// encoderParts is what a route needs of its encoder.
type encoderParts struct {
	scope   encode.Scope
	codec   batch.Codec
	needsPC bool
}

// inspect asks the encoder for its parts and contains its panics.
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

func (b *builder) output(c *core, spec *OutputSpec, place string, codec batch.Codec) *output {
	o := &output{w: spec.w, name: spec.name, closes: spec.closes, events: c.events}
	if spec.nilOpt {
		b.fault(place, "an option is nil; leave it out")
	}
	if spec.level != nil && isNil(spec.level) {
		b.fault(place, "the level is a nil %T", spec.level)
	}
	o.level = newThreshold(spec.level)
	if spec.busySet && spec.busy <= 0 {
		b.fault(place, "BusyTimeout %v is not positive; the default is %v", spec.busy, defaultBusyTimeout)
	}
	if spec.onError != nil {
		o.events = newReporter(spec.onError)
		c.reporters = append(c.reporters, o.events)
	}
	if o.name != "" {
		if other, dup := b.names[o.name]; dup {
			b.fault(place, "the name %q is that of %s already", o.name, other)
		}
		b.names[o.name] = place
	}
	if isNil(spec.w) {
		b.fault(place, "the writer is nil")
		return o
	}
	if ours, theirs := contentType(codec), writerContentType(spec.w); ours != "" && theirs != "" && ours != theirs {
		b.fault(place, "the encoder writes %s, but the writer takes %s", ours, theirs)
	}
	return o
}

// writerContentType returns the wire form w takes, or "" if it does not say.
func writerContentType(w io.Writer) (ct string) {
	if cw, ok := w.(coded); ok {
		defer func() { _ = recover() }()
		ct = contentType(cw.Codec())
	}
	return ct
}

func contentType(c batch.Codec) string {
	if isNil(c) {
		return ""
	}
	return c.ContentType()
}

// defaultNames names the outputs that were given no name.
func (b *builder) defaultNames(c *core) {
	for _, o := range c.outputs {
		if o.name != "" {
			continue
		}
		base := writerName(o.w)
		o.name = base
		for i := 2; b.names[o.name] != ""; i++ {
			o.name = fmt.Sprintf("%s#%d", base, i)
		}
		b.names[o.name] = "an output without a given name"
	}
}

// writerName asks w for its name.
func writerName(w io.Writer) (name string) {
	name = strings.TrimPrefix(fmt.Sprintf("%T", w), "*")
	defer func() { _ = recover() }()
	if n, ok := w.(named); ok {
		if s := n.Name(); s != "" {
			name = s
		}
	}
	return name
}

// connect finds out which methods the writer of each output has.
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
			o.dir = newDirect(o.w, o.name, busy[i], o.events)
			continue
		}
		o.dir, o.shared, first.shared = first.dir, true, true
		o.dir.busy = min(o.dir.busy, busy[i])
	}
}

// isNil reports whether v is nil or holds a nil pointer, map, function or such.
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

// floorOf returns a variable with a level below which no output takes anything,
// and whether it always is the lowest of the outputs.
func floorOf(outputs []*output) (floor *slog.LevelVar, exact bool) {
	low := &outputs[0].level
	for _, o := range outputs {
		l := &o.level
		switch {
		case l.v == nil:
			return lowest, false
		case l.v == low.v:
		case !l.fixed || !low.fixed:
			return lowest, false
		case l.level() < low.level():
			low = l
		}
	}
	return low.v, true
}

// lowest admits everything.
var lowest = func() *slog.LevelVar {
	v := new(slog.LevelVar)
	v.Set(minLevel)
	return v
}()

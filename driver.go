package forebay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

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

	claims func(what, path string) error // registers a path; see claim; nil if paths need not be registered
}

// claim registers a path that only one output may use. It returns an error if another output has
// registered it.
func (s *Setup) claim(what, path string) error {
	if s.claims == nil {
		return nil
	}
	return s.claims(what, path)
}

// Driver returns an output for a destination that is configured by a C. It is for packages
// that implement a destination with options, such as loki and fluent. For a destination
// without options, [To] is sufficient.
//
// NewRouter copies conf, applies the options made with [DriverOption] for this C, and calls
// open, which completes s and returns the destination. The Router owns the destination. kind
// names the output in errors, such as "loki.To".
func Driver[C any](kind string, conf C, open func(c *C, s *Setup) (deliver.Destination, error), opts ...OutputOption) OutputSpec {
	return newSpec(OutputSpec{kind: kind, driver: driverOf[C]{conf, open}}, opts)
}

// DriverOption returns an option for outputs whose [Driver] is configured by a C. name is the
// name of the option in errors, such as "loki.Label". NewRouter returns an error if the option
// is given to another output.
func DriverOption[C any](name string, set func(*C) error) OutputOption {
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

// A driverOf is the driver of an output whose configuration is a C.
type driverOf[C any] struct {
	conf  C
	openf func(*C, *Setup) (deliver.Destination, error)
}

// open applies the settings to the configuration and opens the destination. Settings of memory and
// delivery are applied last, so that they override values set by the driver.
func (d driverOf[C]) open(settings []setting, s *Setup) (dest deliver.Destination, errs []error) {
	var later []func() error
	for _, o := range settings {
		switch set := o.set.(type) {
		case func(*deliver.OutputOptions) error:
			later = append(later, func() error { return o.fault(set(&s.OutputOptions)) })
		case func(*C) error:
			if err := o.fault(set(&d.conf)); err != nil {
				errs = append(errs, err)
			}
		default:
			errs = append(errs, fmt.Errorf("%s does not apply to it; leave it out", o.name))
		}
	}
	var err error
	if p := contain.Call(func() { dest, err = d.openf(&d.conf, s) }); p != nil {
		err = p
	}
	if err == nil && isNil(dest) {
		err = errors.New("the destination is nil")
	}
	if err == nil {
		err = s.complete(dest)
	}
	if err != nil {
		errs = append(errs, err)
	}
	for _, set := range later {
		if err := set(); err != nil {
			errs = append(errs, err)
		}
	}
	return dest, errs
}

// complete takes the encoder (if none is set) and the output's name from dest.
func (s *Setup) complete(dest deliver.Destination) (err error) {
	if p := contain.Call(func() {
		if e, ok := dest.(interface{ Encoder() encode.Encoder }); ok && s.Encoder == nil {
			s.Encoder = e.Encoder()
		}
		if f := dest.Traits().Defaults; f != nil {
			o := s.OutputOptions
			f(&o)
			s.Name = o.Name
		}
	}); p != nil {
		err = p
	}
	return err
}

// fault adds the name of the option to err. It returns nil if err is nil.
func (s setting) fault(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.name, err)
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

// Spool stores records in dir while the destination is down, and the records that Close could
// not deliver. They are delivered first when the destination is available again, or at the
// next start. The directory is created if it is missing, and only one output may use it. The
// default limit is 1 GiB; use [Delivery] to change it. By default an output has no spool.
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
		return fmt.Errorf("cannot create the directory: %w; create it for the user of this process, or use another one", err)
	}
	return nil
}

// WhenFull sets the behavior of a call when the memory of the output is full because its
// destination is slow or down: "block-for=250ms" waits at most that long and then drops the
// record, "block" waits until there is room, "drop-newest" and "drop-oldest" do not wait, and
// "spill" moves the oldest records to the [Spool]. The default is block-for=250ms. Dropped
// records are counted.
func WhenFull(policy string) OutputOption {
	return deliverySetting("forebay.WhenFull", func(o *deliver.OutputOptions) (err error) {
		o.Slab.WhenFull, err = slab.ParseWhenFull(policy)
		return err
	})
}

// Buffer sets the memory of the output in bytes. The default is 512 KiB, and 4 MiB for loki.To
// and fluent.To. slab.Plan computes the size that absorbs a given stall.
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

// Open opens an output that is not part of a Router. It is for records that are encoded elsewhere:
// by another logger, or by a driver with a separate API, such as fluent.Logger. The caller closes
// the output. The error names all invalid options. The option [Level] does not apply.
func Open(o OutputSpec) (*deliver.Output, error) {
	b := builder{what: "open output", bare: true, names: map[string]string{}, paths: map[string]string{}}
	place := o.kind
	if o.level != nil || o.levelNil {
		b.fault(place, "Level does not apply to it; leave it out")
	}
	b.prepare(&core{events: newReporter(o.onError)}, &o, place)
	out, _ := o.w.(*deliver.Output)
	if len(b.faults) > 0 {
		if out != nil {
			_ = out.Close()
		}
		return nil, errors.Join(b.faults...)
	}
	if out == nil {
		return nil, fmt.Errorf("forebay: cannot open output: %s: it has no memory; use Writer, File or To", place)
	}
	return out, nil
}

// open opens the destination of an output that has a driver, and creates its memory and delivery.
// It sets spec.w, spec.enc and spec.name.
func (b *builder) open(spec *OutputSpec, place string) {
	s := Setup{Encoder: spec.enc}
	s.Name = spec.name
	if s.OnError = spec.events.post; b.bare {
		s.OnError = spec.onError
	}
	s.claims = func(what, path string) error { return b.claim(what, path, place) }
	dest, errs := spec.driver.open(spec.settings, &s)
	if spec.enc != nil && !spec.encSet && !sameEncoder(s.Encoder, spec.enc) {
		errs = append(errs, errors.New("it has its own encoder; give it to New without a Route"))
	}
	if isNil(s.Encoder) {
		s.Encoder = defaultEncoder
	}
	spec.enc = s.Encoder
	if s.Name == "" {
		s.Name = spec.kind
	}
	if spec.name == "" {
		s.Name = b.freeName(s.Name)
	}
	spec.name = s.Name
	b.names[s.Name] = place
	if s.Slab.WhenFull == slab.Spill() && s.SpoolDir == "" {
		errs = append(errs, errors.New(`WhenFull is "spill", but there is no Spool; add Spool(dir)`))
	}
	for _, dir := range []struct{ option, path string }{{"Spool", s.SpoolDir}, {"CrashSafe", s.CrashDir}} {
		if err := b.claim("directory", dir.path, place); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir.option, err))
		}
	}
	if s.Codec == nil {
		if e, err := inspect(s.Encoder); err == nil {
			s.Codec = e.codec
		}
	}
	for _, err := range errs {
		b.fault(place, "%w", err)
	}
	if len(errs) > 0 {
		if cl, ok := dest.(interface{ Close(context.Context) error }); ok && !isNil(dest) {
			_ = contain.Call(func() { _ = cl.Close(context.Background()) })
		}
		return
	}
	out, err := deliver.NewOutput(dest, &s.OutputOptions)
	if err != nil {
		b.fault(place, "%w", err)
		return
	}
	spec.w, spec.closes = out, true
}

// sameEncoder reports whether a and b are equal. It does not panic if their types are not comparable.
func sameEncoder(a, b encode.Encoder) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// claim registers a file or directory that only one output may use. It returns an error if another
// output has registered it.
func (b *builder) claim(what, path, place string) error {
	if path == "" {
		return nil
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if other, ok := b.paths[path]; ok {
		return fmt.Errorf("the %s %s is already used by %s; give each a separate one", what, path, other)
	}
	b.paths[path] = place
	return nil
}

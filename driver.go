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
	"github.com/forebay-log/forebay/slab"
)

// A Setup is an output in the making: what its options ask for, completed by the
// function given to [Driver].
type Setup struct {
	// Encoder is that of the option Encoder or of the Route, or nil. A driver whose
	// records have a form of their own puts its encoder here. If it stays nil the output
	// writes JSON.
	Encoder encode.Encoder
	// OutputOptions are the options of memory and delivery. A driver sets its defaults
	// in them; the options of the output are applied afterwards and win. Name is empty
	// or that of the option Name; a driver may set a default.
	deliver.OutputOptions

	claims func(what, path string) error // nil: anything may be claimed
}

// claim enters a path that only one output may have.
func (s *Setup) claim(what, path string) error {
	if s.claims == nil {
		return nil
	}
	return s.claims(what, path)
}

// Driver makes an output of a destination that is configured by a C. It is for packages
// with a driver of their own, as loki.To and fluent.To are made with it; [To] is enough
// for a destination that needs no options.
//
// NewRouter copies conf, applies the options made by [DriverOption] for this C, and calls
// open, which completes s and returns the destination. The Router owns it. kind names
// the output in errors, such as "loki.To".
func Driver[C any](kind string, conf C, open func(c *C, s *Setup) (deliver.Destination, error), opts ...OutputOption) OutputSpec {
	return newSpec(OutputSpec{kind: kind, driver: driverOf[C]{conf, open}}, opts)
}

// DriverOption makes an option of outputs whose [Driver] is configured by a C. name
// stands in errors, such as "loki.Label". Given to any other output, the option is a
// fault.
func DriverOption[C any](name string, set func(*C) error) OutputOption {
	return setting{name, set}
}

// A setting is an option for the driver of an output, or for its memory and delivery.
type setting struct {
	name string
	set  any // a func(*C) error, where C may be deliver.OutputOptions
}

func (s setting) applyOutput(o *OutputSpec) { o.settings = append(o.settings, s) }

// driver opens the destination of an output.
type driver interface {
	open(settings []setting, s *Setup) (deliver.Destination, []error)
}

type driverOf[C any] struct {
	conf  C
	openf func(*C, *Setup) (deliver.Destination, error)
}

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

func (s setting) fault(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.name, err)
}

// Level sets the lowest level that the output takes. It may change at any time, as a
// *slog.LevelVar does. An output without this option takes what its logger lets through:
// slog.LevelInfo and more, or as [Router.SetLevel] says.
func Level(l slog.Leveler) OutputOption { return outputLevel{l} }

type outputLevel struct{ l slog.Leveler }

func (l outputLevel) applyOutput(o *OutputSpec) { o.level, o.levelNil = l.l, l.l == nil }

// Encoder sets the form of the records. The default is JSON, for [Console] text for
// people, and for loki.To and fluent.To what their server takes. A Route has its own
// encoder, and its outputs cannot have another.
func Encoder(enc encode.Encoder) OutputOption { return outputEncoder{enc} }

type outputEncoder struct{ enc encode.Encoder }

func (e outputEncoder) applyOutput(o *OutputSpec) { o.enc, o.encSet = e.enc, true }

// Spool makes dir hold what the destination does not take while it is down, and what
// Close could not deliver. When the destination is back, or at the next start, these
// records are delivered first. The directory is made if it is missing, and belongs to
// one output. It holds up to 1 GiB; see [Delivery] for other sizes.
func Spool(dir string) OutputOption {
	return deliverySetting("forebay.Spool", func(o *deliver.OutputOptions) error {
		o.SpoolDir = dir
		return makeDir(dir)
	})
}

// CrashSafe makes records that a call has returned from survive the death of the
// process. The memory of the output lies in a file in dir, and the next start delivers
// what is left in it. The directory is made if it is missing, and belongs to one
// output; a tmpfs is the best place. Linux and macOS; elsewhere OnError is told, and the
// records are in memory. See slab.Crash.
func CrashSafe(dir string) OutputOption {
	return deliverySetting("forebay.CrashSafe", func(o *deliver.OutputOptions) error {
		o.CrashDir, o.Slab.Crash = dir, nil
		return makeDir(dir)
	})
}

func makeDir(dir string) error {
	if dir == "" {
		return errors.New("the directory is empty; give its path")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the directory: %w; make it for the user of this process, or give another one", err)
	}
	return nil
}

// WhenFull says what a call does when the memory of the output is full because its
// destination is slow or down: "block-for=250ms" waits at most that long and then drops
// the record, "block" waits as long as it takes, "drop-newest" and "drop-oldest" do not
// wait, and "spill" makes room by moving the oldest records into the [Spool]. The default
// is block-for=250ms. What is dropped is counted.
func WhenFull(policy string) OutputOption {
	return deliverySetting("forebay.WhenFull", func(o *deliver.OutputOptions) (err error) {
		o.Slab.WhenFull, err = slab.ParseWhenFull(policy)
		return err
	})
}

// Buffer sets the memory of the output in bytes. The default is 512 KiB, for loki.To and
// fluent.To 4 MiB. slab.Plan says how much absorbs which stall.
func Buffer(bytes int) OutputOption {
	return deliverySetting("forebay.Buffer", func(o *deliver.OutputOptions) error {
		size := o.Slab.SlabBytes
		if size == 0 {
			size = slab.DefaultSlabBytes
		}
		if least := 2 * slab.MinSlabBytes; bytes < least {
			return fmt.Errorf("%d bytes are too few; give %d or more", bytes, least)
		}
		size = min(size, bytes/2)
		o.BufferBytes, o.Slab.SlabBytes, o.Slab.SlabCount = bytes, size, bytes/size
		return nil
	})
}

// Delivery gives set the options of memory and delivery, for everything that has no
// option of its own: retry, circuit breaker, fallback, dead letters, timeouts. set is
// called by NewRouter, after the defaults of the driver and in the order of the options.
func Delivery(set func(*deliver.OutputOptions)) OutputOption {
	return deliverySetting("forebay.Delivery", func(o *deliver.OutputOptions) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(o)
		return nil
	})
}

func deliverySetting(name string, set func(*deliver.OutputOptions) error) OutputOption {
	return setting{name, set}
}

// open opens the destination of a spec that has a driver, and puts memory and delivery
// in front of it. It completes spec.w and spec.enc.
func (b *builder) open(spec *OutputSpec, place string) {
	s := Setup{Encoder: spec.enc}
	s.Name = spec.name
	s.OnError = spec.events.post
	s.claims = func(what, path string) error { return b.claim(what, path, place) }
	dest, errs := spec.driver.open(spec.settings, &s)
	if spec.enc != nil && !spec.encSet && !sameEncoder(s.Encoder, spec.enc) {
		errs = append(errs, errors.New("it brings an encoder of its own; give it to New without a Route"))
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
	if s.Slab.WhenFull == slab.Spill() && s.SpoolDir == "" && s.Deliver.Spill == nil {
		errs = append(errs, errors.New(`WhenFull is "spill", but there is no Spool; give Spool(dir), too`))
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

func sameEncoder(a, b encode.Encoder) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// claim enters a file or directory that belongs to one output.
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
		return fmt.Errorf("the %s %s is that of %s already; give each its own", what, path, other)
	}
	b.paths[path] = place
	return nil
}

package forebay

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/slab"
)

// Driver returns an output for a destination that is configured by a value of type C. It is for
// packages that implement a destination with options, such as loki and fluent. For a destination
// without options, [To] is sufficient.
//
// NewRouter copies conf, applies the options made with [DriverOption] for the type C, and calls the
// function open, which completes s and returns the destination. The Router owns the destination.
// kind names the output in errors, such as "loki.To".
func Driver[C any](kind string, conf C, open func(c *C, s *Setup) (deliver.Destination, error), opts ...OutputOption) OutputSpec {
	return newSpec(OutputSpec{kind: kind, driver: driverOf[C]{conf, open}}, opts)
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

// claim registers a path that only one output may use. It returns an error if another output has
// registered it.
func (s *Setup) claim(what, path string) error {
	if s.claims == nil {
		return nil
	}
	return s.claims(what, path)
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
	if s.Slab.WhenFull == (slab.WhenFull{}) && s.SpoolDir != "" {
		s.Slab.WhenFull = slab.Spill()
	}
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
	for _, err := range joined(errors.Join(errs...)) {
		b.fault(place, "%w", err)
	}
	if len(errs) > 0 {
		if cl, ok := dest.(interface{ Close(context.Context) error }); ok && !isNil(dest) {
			_ = contain.Call(func() { _ = cl.Close(context.Background()) })
		}
		return
	}
	out, err := deliver.NewOutput(dest, &s.OutputOptions)
	for _, err := range joined(err) {
		b.fault(place, "%w", err)
	}
	if err != nil {
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

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"

	rival "github.com/grafana/loki-client-go/loki"
	"github.com/prometheus/common/model"
	slogloki "github.com/samber/slog-loki/v3"

	"github.com/forebay-log/forebay"
	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/loki"
)

const label = "benchmarks"

// through hands prebuilt records to a slog.Handler.
func through(hd slog.Handler, recs []slog.Record) func(int, int) {
	ctx := context.Background()
	return func(_, n int) {
		for i := range n {
			hd.Handle(ctx, recs[i%len(recs)])
		}
	}
}

// A way is how records are handed over.
type way string

const (
	handler way = "slog.Handler, prebuilt slog.Records"
	native  way = "forebay.Logger, prebuilt attributes"
)

// ours is the whole of it: encoder, slab, delivery, push. With warm events before
// the clock starts all memory has been used once.
func ours(name string, by way, wire string, exception bool, warm int) h.Contender {
	note := string(by)
	if warm > 0 {
		note += fmt.Sprintf(", after %d events to fill pools", warm)
	}
	return h.Contender{Name: name, Kind: h.Ours, Note: note, New: func(*h.Env) (*h.Subject, error) {
		s := newSink204()
		hd, err := newHandler(s, wire)
		if err != nil {
			return nil, err
		}
		recs := records(exception)
		run := through(hd, recs)
		if by == native {
			run = throughLogger(hd.Logger(), plain(recs))
		}
		if warm > 0 {
			run(0, warm)
			if err := hd.Flush(context.Background()); err != nil {
				return nil, err
			}
		}
		before := s.bytes.Load()
		var delivered uint64
		return &h.Subject{Run: run, Drain: func() error {
			rep, err := hd.Close(context.Background())
			delivered = rep.Outputs[0].Delivered
			return err
		}, Tally: func() (h.Tally, error) {
			return h.Tally{Records: delivered - uint64(warm), Bytes: s.bytes.Load() - before}, nil
		}}, nil
	}}
}

// config asks for the lines that the source's benchmark has: Message as the key of the
// message, and errors with their type, stack and the error within.
func config(wire string) loki.Config {
	return loki.Config{URL: "http://loki.invalid", Labels: map[string]string{"app": label}, Wire: wire, Line: loki.Line{MessageKey: "Message", Errors: "object"}}
}

func newHandler(s *sink204, wire string) (*forebay.Router, error) {
	c := config(wire)
	c.HTTP.Client = s.client()
	return forebay.NewRouter(loki.To(c.URL, loki.Configure(func(to *loki.Config) { *to = c }), forebay.WhenFull("block")))
}

// throughLogger hands prebuilt attributes to a forebay.Logger.
func throughLogger(l *forebay.Logger, recs []encode.Record) func(int, int) {
	return func(_, n int) {
		for i := range n {
			r := &recs[i%len(recs)]
			l.Log(r.Level, r.Message, r.Attrs...)
		}
	}
}

// clientGo is loki-client-go behind a line of slog's JSON handler.
func clientGo(exception bool) h.Contender {
	return h.Contender{Name: "loki-client-go", Kind: h.Rival, Note: "slog.JSONHandler's line, labels app and level; errors with type, message and stack by LogValuer", New: func(*h.Env) (*h.Subject, error) {
		s := newSink204()
		c, err := newClient(s)
		if err != nil {
			return nil, err
		}
		var buf bytes.Buffer
		js := slog.NewJSONHandler(&buf, nil)
		recs := spelled(records(exception))
		labels := map[slog.Level]model.LabelSet{}
		for _, l := range []slog.Level{slog.LevelInfo, slog.LevelError} {
			labels[l] = model.LabelSet{"app": label, "level": model.LabelValue(l.String())}
		}
		ctx := context.Background()
		n0 := uint64(0)
		return &h.Subject{Run: func(_, n int) {
			for i := range n {
				r := &recs[i%len(recs)]
				buf.Reset()
				js.Handle(ctx, *r)
				c.Handle(labels[r.Level], r.Time, string(buf.Bytes()[:buf.Len()-1]))
			}
			n0 += uint64(n)
		}, Drain: func() error { c.Stop(); return nil },
			Tally: func() (h.Tally, error) { return h.Tally{Records: n0, Bytes: s.bytes.Load()}, nil }}, nil
	}}
}

// spelled returns the records with errors as slog.LogValuers that say as much of
// them as our lines do: the usual way to have that in slog.
func spelled(in []slog.Record) []slog.Record {
	out := make([]slog.Record, len(in))
	for i, r := range in {
		out[i] = slog.NewRecord(r.Time, r.Level, r.Message, 0)
		r.Attrs(func(a slog.Attr) bool {
			if e, ok := a.Value.Any().(*thrown); ok {
				a.Value = slog.AnyValue(exception{e})
			}
			out[i].AddAttrs(a)
			return true
		})
	}
	return out
}

// An exception says of an error what our lines say of it.
type exception struct{ e *thrown }

func (x exception) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("Type", fmt.Sprintf("%T", x.e)), slog.String("Message", x.e.Error()), slog.String("StackTrace", x.e.stack())}
	if in, ok := x.e.Unwrap().(*thrown); ok {
		attrs = append(attrs, slog.Any("Inner", exception{in}))
	}
	return slog.GroupValue(attrs...)
}

// slogLoki is samber/slog-loki with its defaults: every attribute a label.
func slogLoki(exception bool) h.Contender {
	return h.Contender{Name: "slog-loki", Kind: h.Rival, Note: "3.5.2, defaults", New: func(*h.Env) (*h.Subject, error) {
		s := newSink204()
		c, err := newClient(s)
		if err != nil {
			return nil, err
		}
		n0 := uint64(0)
		run := through(slogloki.Option{Client: c, Level: slog.LevelInfo}.NewLokiHandler(), spelled(records(exception)))
		return &h.Subject{Run: func(w, n int) { run(w, n); n0 += uint64(n) }, Drain: func() error { c.Stop(); return nil },
			Tally: func() (h.Tally, error) { return h.Tally{Records: n0, Bytes: s.bytes.Load()}, nil }}, nil
	}}
}

func newClient(s *sink204) (*rival.Client, error) {
	c, err := rival.NewDefaultConfig("http://loki.invalid/loki/api/v1/push")
	if err != nil {
		return nil, err
	}
	c.TenantID = ""
	cl, err := rival.New(c)
	if err != nil {
		return nil, fmt.Errorf("loki-client-go: %w", err)
	}
	s.swap(cl)
	return cl, nil
}

// encodeOnly renders entries and nothing else.
func encodeOnly(name string, wire string, exception bool) h.Contender {
	return h.Contender{Name: name, Kind: h.Ours, Note: "Encoder.Append into one buffer", New: func(*h.Env) (*h.Subject, error) {
		s, err := loki.New(config(wire))
		if err != nil {
			return nil, err
		}
		scope := s.Encoder().Scope()
		recs := plain(records(exception))
		dst := make([]byte, 0, 4096)
		return &h.Subject{Run: func(_, n int) {
			for i := range n {
				dst, _, _ = scope.Append(dst[:0], &recs[i%len(recs)])
			}
		}}, nil
	}}
}

func plain(in []slog.Record) []encode.Record {
	out := make([]encode.Record, len(in))
	for i, r := range in {
		out[i] = encode.Record{Time: r.Time, Level: r.Level, Message: r.Message}
		r.Attrs(func(a slog.Attr) bool { out[i].Attrs = append(out[i].Attrs, a); return true })
	}
	return out
}

// handWritten appends the bytes of one Simple entry with code that knows the
// event: keys and escapes are constants, strings are looked through for what
// needs an escape, which none does.
func handWritten() h.Contender {
	return h.Contender{Name: "hand-written", Kind: h.Reference, Note: "append of the same bytes, strings checked", New: func(*h.Env) (*h.Subject, error) {
		recs := plain(records(false))
		dst := make([]byte, 0, 4096)
		return &h.Subject{Run: func(_, n int) {
			for i := range n {
				dst = appendByHand(dst[:0], &recs[i%len(recs)])
			}
		}}, nil
	}}
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"

	rival "github.com/grafana/loki-client-go/loki"
	"github.com/prometheus/common/model"
	slogloki "github.com/samber/slog-loki/v3"

	"github.com/forebay-log/forebay"
	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/loki"
)

const (
	name  = "forebay"
	label = "benchmarks"
)

// throughHandler returns a loop that passes prebuilt records to a slog.Handler.
func throughHandler[H slog.Handler](hd H, recs []slog.Record) func(int, int) {
	ctx := context.Background()
	return func(_, n int) {
		for i := range n {
			hd.Handle(ctx, recs[i%len(recs)])
		}
	}
}

// toLoki returns a contender that logs through forebay to Loki. It measures the encoder, the slabs,
// the delivery and the push request. The function loop returns the loop over the records.
//
// Lines have the format of the benchmark in the project's design document: the message has the key
// Message, and errors have type, stack and inner error.
func toLoki(name, note string, exception bool, loop func(*forebay.Router, []slog.Record) func(int, int)) h.Contender {
	return h.Contender{Name: name, Kind: h.Ours, Note: note, New: func(*h.Env) (*h.Subject, error) {
		s := new(sink204)
		router, err := forebay.NewRouter(loki.To("http://loki.invalid", forebay.Configure(func(to *loki.Config) {
			to.Labels, to.Wire, to.Line = map[string]string{"app": label}, "protobuf", loki.Line{MessageKey: "Message", Errors: "object"}
			to.HTTP.Client = &http.Client{Transport: s}
		}), forebay.WhenFull("block")))
		if err != nil {
			return nil, err
		}
		var delivered uint64
		return &h.Subject{Run: loop(router, records(exception)), Drain: func() error {
			rep, err := router.Close(context.Background())
			delivered = rep.Outputs[0].Delivered
			return err
		}, Tally: func() (h.Tally, error) {
			return h.Tally{Records: delivered, Bytes: s.bytes.Load()}, nil
		}}, nil
	}}
}

// throughLogger logs the attributes of the records through a forebay.Logger.
func throughLogger(r *forebay.Router, recs []slog.Record) func(int, int) {
	l, attrs := r.Logger(), make([][]slog.Attr, len(recs))
	for i, r := range recs {
		r.Attrs(func(a slog.Attr) bool { attrs[i] = append(attrs[i], a); return true })
	}
	return func(_, n int) {
		for i := range n {
			i %= len(recs)
			l.Log(recs[i].Level, recs[i].Message, attrs[i]...)
		}
	}
}

// lokiRival returns a contender that logs through loki-client-go. The function loop returns the
// loop over the records.
func lokiRival(name, note string, exception bool, loop func(*rival.Client, []slog.Record) func(int, int)) h.Contender {
	return h.Contender{Name: name, Kind: h.Rival, Note: note, New: func(*h.Env) (*h.Subject, error) {
		s := new(sink204)
		c, err := newClient(s)
		if err != nil {
			return nil, err
		}
		run, logged := loop(c, withLogValuers(records(exception))), uint64(0)
		return &h.Subject{
			Run:   func(w, n int) { run(w, n); logged += uint64(n) },
			Drain: func() error { c.Stop(); return nil },
			Tally: func() (h.Tally, error) { return h.Tally{Records: logged, Bytes: s.bytes.Load()}, nil },
		}, nil
	}}
}

// linesOfJSONHandler logs the lines of slog's JSON handler.
func linesOfJSONHandler(c *rival.Client, recs []slog.Record) func(int, int) {
	var buf bytes.Buffer
	js, ctx := slog.NewJSONHandler(&buf, nil), context.Background()
	labels := map[slog.Level]model.LabelSet{}
	for _, l := range []slog.Level{slog.LevelInfo, slog.LevelError} {
		labels[l] = model.LabelSet{"app": label, "level": model.LabelValue(l.String())}
	}
	return func(_, n int) {
		for i := range n {
			r := &recs[i%len(recs)]
			buf.Reset()
			js.Handle(ctx, *r)
			c.Handle(labels[r.Level], r.Time, string(buf.Bytes()[:buf.Len()-1]))
		}
	}
}

// slogLoki logs through samber/slog-loki with its default settings, in which every attribute becomes
// a label.
func slogLoki(c *rival.Client, recs []slog.Record) func(int, int) {
	return throughHandler(slogloki.Option{Client: c, Level: slog.LevelInfo}.NewLokiHandler(), recs)
}

// withLogValuers returns the records with each error replaced with a slog.LogValuer, the usual
// interface in slog. The resulting lines have the same content as forebay's.
func withLogValuers(in []slog.Record) []slog.Record {
	out := make([]slog.Record, len(in))
	for i, r := range in {
		out[i] = slog.NewRecord(r.Time, r.Level, r.Message, 0)
		r.Attrs(func(a slog.Attr) bool {
			if e, ok := a.Value.Any().(*traced); ok {
				a.Value = slog.AnyValue(exception{e})
			}
			out[i].AddAttrs(a)
			return true
		})
	}
	return out
}

// An exception is a LogValuer that logs an error as a group of type, message, stack and inner
// error.
type exception struct{ e *traced }

func (x exception) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("Type", fmt.Sprintf("%T", x.e)), slog.String("Message", x.e.Error()), slog.String("StackTrace", x.e.stack())}
	if in, ok := x.e.Unwrap().(*traced); ok {
		attrs = append(attrs, slog.Any("Inner", exception{in}))
	}
	return slog.GroupValue(attrs...)
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

func init() {
	// As in the benchmark of the design document, each sample uses a new logger. The creation of
	// the logger and of the events is not measured.
	for _, r := range []struct {
		name      string
		exception bool
		factor    float64
		mb        float64
	}{{"loki/simple-10k", false, 1. / 6, 0.04}, {"loki/exception-10k", true, 1. / 8, 0.05}} {
		row := h.Row{
			Name: r.name, What: "10000 prebuilt events, one stream, proto and snappy, new logger, until closed",
			Reference: "loki-client-go", MaxOps: distinct,
			Contenders: []h.Contender{toLoki(name, "slog.Handler, prebuilt slog.Records", r.exception, throughHandler[*forebay.Router]),
				toLoki("native", "forebay.Logger, prebuilt attributes", r.exception, throughLogger),
				lokiRival("loki-client-go", "slog.JSONHandler's line, labels app and level; errors with type, message and stack by LogValuer", r.exception, linesOfJSONHandler)},
			Targets: []h.Target{h.Versus("native", "loki-client-go", r.factor), h.AtMost(name, h.Allocs, 0.02), h.AtMost("native", h.Allocs, 0.02),
				h.AtMost(name, h.AllocBytes, r.mb*1e6/distinct), h.AtMost("native", h.AllocBytes, r.mb*1e6/distinct)},
		}
		if !r.exception {
			row.Contenders = append(row.Contenders, lokiRival("slog-loki", "3.5.2, defaults", r.exception, slogLoki))
			row.Targets = append(row.Targets, h.Versus("native", "slog-loki", 1./25))
		}
		h.Register(row)
	}
}

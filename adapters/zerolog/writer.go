// Package forebayzerolog sends the events of a zerolog.Logger to the outputs of a forebay.Logger,
// as records with typed attributes.
//
//	logger := zerolog.New(forebayzerolog.New(log)).With().Timestamp().Logger()
//
//	zerolog.Logger ─▶ JSON line ─▶ parse ─▶ forebay.Logger ─▶ outputs
//
// Redaction, attributes of With and formats are determined by the forebay.Logger. zerolog encodes an
// event before the writer receives it, so its lines must be parsed. To reduce that work, also set the
// level of the zerolog.Logger.
package forebayzerolog

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/internal/record"
)

// lastTimeout limits how long zerolog is delayed by an event after which it exits the program. It
// equals the limit of forebay.SyncLevel.
const lastTimeout = 250 * time.Millisecond

// New returns a writer for zerolog.New that passes events to the given Logger.
//
//   - Level, time and message come from the fields that zerolog's variables, such as
//     zerolog.TimestampFieldName, name for them. A line without a level has slog.LevelInfo, and a
//     line without a time has the current time. zerolog writes whole seconds by default; the
//     current time supplies the fraction.
//   - All other fields are attributes, in order: objects are groups; lists and unusual numbers keep
//     their text, so that no digit changes. Errors, durations and times have zerolog's format.
//   - The levels trace to error become slog.LevelDebug-4 to slog.LevelError. Fatal and panic become
//     slog.LevelError+4. Such a call waits until the event is delivered, at most 250 ms, because
//     zerolog then exits the program.
//   - A line that is not JSON becomes the message.
//   - Errors of outputs are counted and reported by the forebay.Router, not returned by Write.
//
// The writer is safe for concurrent use. A nil Logger discards all events.
func New(log *forebay.Logger) zerolog.LevelWriter {
	return &writer{log: log, handler: log.Slog().Handler()}
}

// A writer implements zerolog.LevelWriter. It is immutable.
type writer struct {
	log     *forebay.Logger // for Flush; nil discards all events
	handler slog.Handler    // handler of log
}

// levelOf returns the slog level of a zerolog level. zerolog's levels from trace to error are 1
// apart.
func levelOf(l zerolog.Level) slog.Level {
	switch {
	case l == zerolog.NoLevel:
		return slog.LevelInfo
	case l > zerolog.ErrorLevel:
		return slog.LevelError + 4
	}
	return slog.Level(l-zerolog.InfoLevel) * 4
}

// Write logs a line and takes the level from a field of the line. zerolog calls it instead of
// WriteLevel if the writer is wrapped in an io.Writer without WriteLevel. The error is always nil.
func (w *writer) Write(p []byte) (int, error) {
	level := zerolog.NoLevel
	if record.IsObject(p) {
		for _, a := range record.Attrs(p) {
			if a.Key == zerolog.LevelFieldName && a.Value.Kind() == slog.KindString {
				if l, err := zerolog.ParseLevel(a.Value.String()); err == nil {
					level = l
				}
				break
			}
		}
	}
	return w.WriteLevel(level, p)
}

// WriteLevel logs a line of zerolog. It does not retain p. The error is always nil.
func (w *writer) WriteLevel(level zerolog.Level, p []byte) (int, error) {
	l := levelOf(level)
	if w.handler.Enabled(context.Background(), l) {
		_ = w.handler.Handle(context.Background(), parse(level, l, p))
	}
	if level == zerolog.FatalLevel || level == zerolog.PanicLevel {
		w.flush()
	}
	return len(p), nil
}

// flush waits until all records are delivered, but at most lastTimeout.
func (w *writer) flush() {
	if r := w.log.Router(); r != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastTimeout)
		defer cancel()
		_ = r.Flush(ctx)
	}
}

// parse converts a line of zerolog to a record. level is the level of the line, and l the same
// level in slog.
func parse(level zerolog.Level, l slog.Level, p []byte) slog.Record {
	now := time.Now()
	if !record.IsObject(p) {
		return slog.NewRecord(now, l, string(bytes.TrimRight(p, "\r\n")), 0)
	}
	attrs := record.Attrs(p)
	// zerolog adds the field for the level before other fields with this name, so the first one is
	// the level.
	if level != zerolog.NoLevel {
		if i := indexOf(attrs, zerolog.LevelFieldName); i >= 0 {
			attrs = slices.Delete(attrs, i, i+1)
		}
	}
	at := now
	if i := indexOf(attrs, zerolog.TimestampFieldName); i >= 0 {
		if t, ok := timeOf(attrs[i].Value); ok {
			attrs = slices.Delete(attrs, i, i+1)
			if at = t; t.Nanosecond() == 0 && t.Unix() == now.Unix() {
				at = now
			}
		}
	}
	msg := ""
	// zerolog adds the field for the message after other fields with this name, so the last one is
	// the message.
	for i, a := range slices.Backward(attrs) {
		if a.Key == zerolog.MessageFieldName && a.Value.Kind() == slog.KindString {
			msg = a.Value.String()
			attrs = slices.Delete(attrs, i, i+1)
			break
		}
	}
	rec := slog.NewRecord(at, l, msg, 0)
	rec.AddAttrs(attrs...)
	return rec
}

// indexOf returns the index of the first attribute with the given key, or -1.
func indexOf(attrs []slog.Attr, key string) int {
	return slices.IndexFunc(attrs, func(a slog.Attr) bool { return a.Key == key })
}

// timeOf parses a time in the format of zerolog.TimeFieldFormat. It returns false if v has another
// format; the caller then keeps the field as an attribute.
func timeOf(v slog.Value) (t time.Time, ok bool) {
	text := v.String()
	switch zerolog.TimeFieldFormat {
	case zerolog.TimeFormatUnix, zerolog.TimeFormatUnixMs, zerolog.TimeFormatUnixMicro, zerolog.TimeFormatUnixNano:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return t, false
		}
		switch zerolog.TimeFieldFormat {
		case zerolog.TimeFormatUnixMs:
			return time.UnixMilli(n), true
		case zerolog.TimeFormatUnixMicro:
			return time.UnixMicro(n), true
		case zerolog.TimeFormatUnixNano:
			return time.Unix(0, n), true
		}
		return time.Unix(n, 0), true
	}
	t, err := time.Parse(zerolog.TimeFieldFormat, text)
	return t, err == nil
}

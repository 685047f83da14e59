package rivals

import (
	"io"
	"log/slog"
	"time"

	phuslu "github.com/phuslu/log"
)

func init() { phuslu.MessageKey = "msg" }

// PhusluHandler returns phuslu/log's slog handler over w.
func PhusluHandler(w io.Writer) slog.Handler {
	return phuslu.SlogNewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo})
}

// Phuslu logs the records of s with chained fields. The library's time formats have only
// milliseconds. Therefore the standard library formats the times, and Dur and Time are not used.
func Phuslu(w io.Writer, s Scenario) Run {
	l := phuslu.Logger{
		Level: phuslu.InfoLevel + phuslu.Level(s.Level()/4), Writer: phuslu.IOWriter{Writer: w},
		TimeField: "time", TimeFormat: time.RFC3339Nano, TimeLocation: time.UTC,
	}
	if s == ContextTen {
		l.Context = phuslu.NewContext(nil).Str("host", Host).Str("region", Region).Str("trace", Trace).Str("path", Path).
			Int("port", Port).Int("attempt", Attempt).Int64("size", Size).
			Float64("load", Load).Bool("cached", Cached).Int64("elapsed", int64(Elapsed)).Value()
	}
	msg, key, value := s.Strings()
	return func(_, n int) {
		for range n {
			switch s {
			case Two, Disabled:
				l.Info().Str("method", Method).Int("status", Status).Msg(Text)
			case Six:
				l.Info().Str("method", Method).Str("path", Path).Int("status", Status).
					Int64("size", Size).Int64("elapsed", int64(Elapsed)).Bool("cached", Cached).Msg(Text)
			case TenMixed:
				l.Info().Int("status", Status).Int64("size", Size).Float64("load", Load).
					Bool("cached", Cached).Str("path", Path).Int64("elapsed", int64(Elapsed)).
					TimeFormat("at", time.RFC3339Nano, At).AnErr("err", Err).Ints("ints", Ints).Object("user", Someone).Msg(Text)
			case Plain1K, UTF81K, Stack1K, BadUTF8, BadKey, Controls:
				l.Info().Str(key, value).Msg(msg)
			case NaN:
				l.Info().Float64("load", Nan).Msg(Text)
			default:
				l.Info().Msg(Text)
			}
		}
	}
}

// MarshalObject implements phuslu.ObjectMarshaler, phuslu/log's way to log objects.
func (u *User) MarshalObject(e *phuslu.Entry) {
	e.Int("id", u.ID).Str("name", u.Name).Bool("admin", u.Admin)
}

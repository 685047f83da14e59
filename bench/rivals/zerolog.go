package rivals

import (
	"io"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
)

func init() {
	zerolog.MessageFieldName = "msg"
	zerolog.TimeFieldFormat = time.RFC3339Nano
	zerolog.DurationFieldFormat = zerolog.DurationFormatInt
	zerolog.DurationFieldUnit = time.Nanosecond
}

// ZerologHandler returns zerolog's slog handler over w.
func ZerologHandler(w io.Writer) slog.Handler {
	return zerolog.NewSlogHandler(zerolog.New(w).Level(zerolog.InfoLevel))
}

// Zerolog logs the records of s with chained fields.
func Zerolog(w io.Writer, s Scenario) Run {
	l := zerolog.New(w).Level(zerolog.InfoLevel + zerolog.Level(s.Level()/4)).With().Timestamp().Logger()
	switch s {
	case Two, Disabled:
		return func(_, n int) {
			for range n {
				l.Info().Str("method", Method).Int("status", Status).Msg(Text)
			}
		}
	case Six:
		return func(_, n int) {
			for range n {
				l.Info().Str("method", Method).Str("path", Path).Int("status", Status).
					Int64("size", Size).Dur("elapsed", Elapsed).Bool("cached", Cached).Msg(Text)
			}
		}
	case TenMixed:
		return func(_, n int) {
			for range n {
				l.Info().Int("status", Status).Int64("size", Size).Float64("load", Load).
					Bool("cached", Cached).Str("path", Path).Dur("elapsed", Elapsed).
					Time("at", At).AnErr("err", Err).Ints("ints", Ints).Object("user", Someone).Msg(Text)
			}
		}
	case ContextTen:
		l = l.With().Str("host", Host).Str("region", Region).Str("trace", Trace).Str("path", Path).
			Int("port", Port).Int("attempt", Attempt).Int64("size", Size).
			Float64("load", Load).Bool("cached", Cached).Dur("elapsed", Elapsed).Logger()
	case Plain1K, UTF81K, Stack1K, Controls:
		body := s.Body()
		return func(_, n int) {
			for range n {
				l.Info().Str("body", body).Msg(Text)
			}
		}
	case BadUTF8, BadKey, NaN:
		return s.Odd(
			func(msg, key, value string) { l.Info().Str(key, value).Msg(msg) },
			func(key string, v float64) { l.Info().Float64(key, v).Msg(Text) })
	}
	return func(_, n int) {
		for range n {
			l.Info().Msg(Text)
		}
	}
}

// MarshalZerologObject implements zerolog.LogObjectMarshaler, zerolog's way to log objects.
func (u *User) MarshalZerologObject(e *zerolog.Event) {
	e.Int("id", u.ID).Str("name", u.Name).Bool("admin", u.Admin)
}

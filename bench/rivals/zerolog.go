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
	if s == ContextTen {
		l = l.With().Str("host", Host).Str("region", Region).Str("trace", Trace).Str("path", Path).
			Int("port", Port).Int("attempt", Attempt).Int64("size", Size).
			Float64("load", Load).Bool("cached", Cached).Dur("elapsed", Elapsed).Logger()
	}
	msg, key, value := s.Strings()
	return func(_, n int) {
		for range n {
			switch s {
			case Two, Disabled:
				l.Info().Str("method", Method).Int("status", Status).Msg(Text)
			case Six:
				l.Info().Str("method", Method).Str("path", Path).Int("status", Status).
					Int64("size", Size).Dur("elapsed", Elapsed).Bool("cached", Cached).Msg(Text)
			case TenMixed:
				l.Info().Int("status", Status).Int64("size", Size).Float64("load", Load).
					Bool("cached", Cached).Str("path", Path).Dur("elapsed", Elapsed).
					Time("at", At).AnErr("err", Err).Ints("ints", Ints).Object("user", Someone).Msg(Text)
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

// MarshalZerologObject implements zerolog.LogObjectMarshaler, zerolog's way to log objects.
func (u *User) MarshalZerologObject(e *zerolog.Event) {
	e.Int("id", u.ID).Str("name", u.Name).Bool("admin", u.Admin)
}

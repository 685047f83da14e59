package rivals

import (
	"io"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
)

// writeOnly hides the method Sync of a file, so that zap does not sync the file.
type writeOnly struct{ io.Writer }

// ZapSink returns w as a WriteSyncer without a lock, for one goroutine.
func ZapSink(w io.Writer) zapcore.WriteSyncer { return zapcore.AddSync(writeOnly{w}) }

// ZapLocked returns w as a WriteSyncer with a lock, for several goroutines.
func ZapLocked(w io.Writer) zapcore.WriteSyncer { return zapcore.Lock(ZapSink(w)) }

func zapCore(w zapcore.WriteSyncer, level slog.Level) zapcore.Core {
	return zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "msg",
		EncodeTime:     zapcore.RFC3339NanoTimeEncoder,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.NanosDurationEncoder,
	}), w, zapcore.Level(level/4))
}

// ZapHandler returns zap's slog handler over w.
func ZapHandler(w io.Writer) slog.Handler {
	return zapslog.NewHandler(zapCore(ZapSink(w), slog.LevelInfo))
}

// Zap logs the records of s with typed fields. If w is a WriteSyncer, it is used directly.
func Zap(w io.Writer, s Scenario) Run {
	ws, ok := w.(zapcore.WriteSyncer)
	if !ok {
		ws = ZapSink(w)
	}
	l := zap.New(zapCore(ws, s.Level()))
	if s == ContextTen {
		l = l.With(zap.String("host", Host), zap.String("region", Region), zap.String("trace", Trace), zap.String("path", Path),
			zap.Int("port", Port), zap.Int("attempt", Attempt), zap.Int64("size", Size),
			zap.Float64("load", Load), zap.Bool("cached", Cached), zap.Duration("elapsed", Elapsed))
	}
	msg, key, value := s.Strings()
	return func(_, n int) {
		for range n {
			switch s {
			case Two, Disabled:
				l.Info(Text, zap.String("method", Method), zap.Int("status", Status))
			case Six:
				l.Info(Text, zap.String("method", Method), zap.String("path", Path), zap.Int("status", Status),
					zap.Int64("size", Size), zap.Duration("elapsed", Elapsed), zap.Bool("cached", Cached))
			case TenMixed:
				l.Info(Text, zap.Int("status", Status), zap.Int64("size", Size), zap.Float64("load", Load),
					zap.Bool("cached", Cached), zap.String("path", Path), zap.Duration("elapsed", Elapsed),
					zap.Time("at", At), zap.NamedError("err", Err), zap.Ints("ints", Ints), zap.Object("user", Someone))
			case Plain1K, UTF81K, Stack1K, BadUTF8, BadKey, Controls:
				l.Info(msg, zap.String(key, value))
			case NaN:
				l.Info(Text, zap.Float64("load", Nan))
			default:
				l.Info(Text)
			}
		}
	}
}

// MarshalLogObject implements zapcore.ObjectMarshaler, zap's way to log objects.
func (u *User) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddInt("id", u.ID)
	enc.AddString("name", u.Name)
	enc.AddBool("admin", u.Admin)
	return nil
}

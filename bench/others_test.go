package main

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/forebay-log/forebay/deliver"
)

// zap and zerolog can write to a deliver.Output without an adapter. Each record is one line, and
// after Sync all lines are at the destination.
func TestOtherLoggersWriteIntoSlabs(t *testing.T) {
	const n = 1000
	for name, write := range map[string]func(w *deliver.Output) error{
		"zap": func(w *deliver.Output) error {
			l := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"}), w, zapcore.InfoLevel))
			for i := range n {
				l.Info("x", zap.Int("n", i))
			}
			return l.Sync()
		},
		"zerolog": func(w *deliver.Output) error {
			l := zerolog.New(w)
			for i := range n {
				l.Info().Int("n", i).Msg("x")
			}
			return w.Sync()
		},
	} {
		var buf bytes.Buffer
		w, err := deliver.NewOutput(deliver.ToWriter(&buf), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := write(w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := bytes.Count(buf.Bytes(), []byte("\n")); got != n {
			t.Errorf("%s: %d lines after Sync, want %d", name, got, n)
		}
		if a := w.Account(); a.Accepted != n || a.Delivered != n {
			t.Errorf("%s: %s", name, a)
		}
		if err := w.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

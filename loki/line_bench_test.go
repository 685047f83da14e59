package loki

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// The lines have 300 bytes of ASCII, as in typical log files.
func BenchmarkAppendLine(b *testing.B) {
	p, err := New(Config{URL: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	line, at := []byte(strings.Repeat("abcdefghi ", 30)), time.Now()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		if dst, _, err = p.AppendLine(dst[:0], at, slog.LevelInfo, line, nil); err != nil {
			b.Fatal(err)
		}
	}
}

package loki

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	ours "github.com/forebay-log/forebay/loki"
)

// Loki accepts records with attributes of any name and value, as labels or as metadata. If Loki
// treats different names as equal, no attribute is lost.
func TestNames(t *testing.T) {
	s := start(t)
	now := time.Now()
	r := &records{t: t, s: s.driver(ours.Config{Labels: labels("test", "alike"), MetadataAll: true})}
	attrs := []slog.Attr{slog.Int("名", 1), slog.Int("ключ", 2), slog.Int("_", 3), slog.Int("a..b", 4), slog.Int("a.b", 5), slog.Int("a_b", 6), slog.Int("a_b_", 7)}
	r.add(now, slog.LevelInfo, "alike", attrs...)
	if err := r.send(); err != nil {
		t.Fatal(err)
	}
	got := s.await("", `{test="alike"}`, now.Add(-time.Minute), 1)
	for k, v := range labels("key_", "1", "key_2", "2", "key_3", "3", "a_b", "4", "a_b_", "5", "a_b_3", "6", "a_b_2", "7") {
		if len(got) == 1 && got[0].labels[k] != v {
			t.Errorf("%s is %q, want %q", k, got[0].labels[k], v)
		}
	}

	const records300 = 300
	rng := rand.New(rand.NewPCG(3, 9))
	parts := []string{"a", "Z", "0", "_", "__", ".", "-", "名", "é", "\x00", "\n", `"`, `\`, "\xff", "\ufffd", "\u2028", "🙂", "=", "{", "}", " ", "\x7f",
		"level", "__name__", "'", "`", "%", "\uffff", "\U0010ffff", "\u200b", "\u0085", "__error__", "detected_level", "service_name", "test"}
	text := func(n int) string {
		var sb strings.Builder
		for range rng.IntN(n) {
			sb.WriteString(parts[rng.IntN(len(parts))])
		}
		return sb.String()
	}
	for i := range records300 {
		c := ours.Config{Wire: []string{"protobuf", "json", "json+gzip"}[i%3], Labels: labels("test", "names"), MetadataAll: i%2 == 0, Limits: ours.Limits{MaxStreams: 100}}
		if i%5 == 0 {
			c.Line.Body = "logfmt"
		}
		var attrs []slog.Attr
		for range rng.IntN(8) {
			k := text(5)
			if rng.IntN(3) == 0 && k != "" {
				c.LabelAttrs = append(c.LabelAttrs, k)
			}
			if rng.IntN(3) == 0 && k != "" {
				c.MetadataAttrs = append(c.MetadataAttrs, k)
			}
			switch rng.IntN(4) {
			case 0:
				attrs = append(attrs, slog.Any(k, map[string]any{text(3): text(4), text(2): errors.New(text(3))}))
			case 1:
				attrs = append(attrs, slog.Group(k, slog.String(text(3), text(4)), slog.Any(text(3), []any{text(2), 1.5})))
			default:
				attrs = append(attrs, slog.String(k, text(6)))
			}
		}
		r := &records{t: t, s: s.driver(c)}
		r.add(now.Add(time.Duration(i)*time.Millisecond), slog.LevelInfo, fmt.Sprint(i, text(8)), attrs...)
		if err := r.send(); err != nil {
			t.Fatalf("%s %q: %v", c.Wire, attrs, err)
		}
	}
	s.await("", `{test="names"}`, now.Add(-time.Minute), records300)
}

package loki

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/forebay-log/forebay/encode"
)

// TestDottedNames: a dot is one of a name, or stands for a group, and where two
// attributes have one name to Loki none is lost.
func TestDottedNames(t *testing.T) {
	get := slog.String("http.method", "GET")
	for name, tt := range map[string]struct {
		c      Config
		attrs  []slog.Attr
		in     string // an open group
		labels string
		meta   map[string]string
	}{
		"flat":           {Config{LabelAttrs: []string{"http.method"}, MetadataAttrs: []string{"user.id"}}, []slog.Attr{get, slog.Int("user.id", 7)}, "", `{app="test", http_method="GET", level="info"}`, map[string]string{"user_id": "7"}},
		"group":          {Config{LabelAttrs: []string{"http.method"}}, []slog.Attr{slog.Group("http", "method", "PUT")}, "", `{app="test", http_method="PUT", level="info"}`, nil},
		"open group":     {Config{LabelAttrs: []string{"a.b.c"}}, []slog.Attr{slog.Int("b.c", 1)}, "a", `{a_b_c="1", app="test", level="info"}`, nil},
		"dotted group":   {Config{LabelAttrs: []string{"a.b.c"}}, []slog.Attr{slog.Group("a.b", "c", 1)}, "", `{app="test", level="info"}`, nil},
		"alike":          {Config{MetadataAll: true}, []slog.Attr{slog.Int("a.b", 1), slog.Int("a_b", 2), slog.Int("a b", 3), slog.Int("a_b", 4)}, "", `{app="test", level="info"}`, map[string]string{"a_b": "1", "a_b_": "4", "a_b__": "3"}},
		"flat and group": {Config{MetadataAll: true}, []slog.Attr{slog.Group("g", "k", 1), slog.Int("g_k", 2)}, "", `{app="test", level="info"}`, map[string]string{"g_k": "1", "g_k_": "2"}},
		"named alike":    {Config{MetadataAttrs: []string{"a.b", "a_b"}}, []slog.Attr{slog.Int("a_b", 1), slog.Int("a.b", 2)}, "", `{app="test", level="info"}`, map[string]string{"a_b": "1", "a_b_": "2"}},
		"label and all":  {Config{MetadataAll: true, LabelAttrs: []string{"x.y"}, MaxLabels: 2}, []slog.Attr{slog.Int("x.y", 1)}, "", `{app="test", level="info"}`, map[string]string{"x_y": "1"}},
	} {
		for _, w := range []Wire{Protobuf, JSON} {
			tt.c.Wire = w
			var scope []func(encode.Scope) encode.Scope
			if tt.in != "" {
				scope = append(scope, inGroup(tt.in))
			}
			e, labels := one(t, tt.c, encode.Record{Message: "m", Attrs: tt.attrs}, scope...)
			if w == Protobuf && labels != tt.labels || !maps.Equal(e.Meta, tt.meta) {
				t.Errorf("%s %s: %s, metadata %v; want %s, %v", name, w, labels, e.Meta, tt.labels, tt.meta)
			}
		}
	}
}

// TestSanitizeTailRandomly: in place as [SanitizeName].
func TestSanitizeTailRandomly(t *testing.T) {
	chars := []string{"a", "_", "9", ".", "é", "\xff", "🙂", "Z", " "}
	for range 20_000 {
		name := ""
		for range rand.IntN(6) {
			name += chars[rand.IntN(len(chars))]
		}
		if got := string(sanitizeTail([]byte("keep"+name), 4)); got != "keep"+SanitizeName(name) {
			t.Fatalf("%q: got %q, want %q", name, got, SanitizeName(name))
		}
	}
}

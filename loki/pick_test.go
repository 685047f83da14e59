package loki

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
)

// A dot in a configured name can be part of a key or separate a group from its member. If two
// attributes have the same name in Loki, both values are stored.
func TestDotsInNamesMatchGroups(t *testing.T) {
	get := slog.String("http.method", "GET")
	for name, tt := range map[string]struct {
		c      Config
		attrs  []slog.Attr
		in     string // name of the open group
		labels string
		meta   map[string]string
	}{
		"flat":           {Config{LabelAttrs: []string{"http.method"}, MetadataAttrs: []string{"user.id"}}, []slog.Attr{get, slog.Int("user.id", 7)}, "", `{app="test", http_method="GET", level="info"}`, map[string]string{"user_id": "7"}},
		"group":          {Config{LabelAttrs: []string{"http.method"}}, []slog.Attr{slog.Group("http", "method", "PUT")}, "", `{app="test", http_method="PUT", level="info"}`, nil},
		"open group":     {Config{LabelAttrs: []string{"a.b.c"}}, []slog.Attr{slog.Int("b.c", 1)}, "a", `{a_b_c="1", app="test", level="info"}`, nil},
		"dotted group":   {Config{LabelAttrs: []string{"a.b.c"}}, []slog.Attr{slog.Group("a.b", "c", 1)}, "", `{app="test", level="info"}`, nil},
		"alike":          {Config{MetadataAll: true}, []slog.Attr{slog.Int("a.b", 1), slog.Int("a_b", 2), slog.Int("a b", 3), slog.Int("a_b", 4)}, "", `{app="test", level="info"}`, map[string]string{"a_b": "1", "a_b_": "4", "a_b_3": "3"}},
		"flat and group": {Config{MetadataAll: true}, []slog.Attr{slog.Group("g", "k", 1), slog.Int("g_k", 2)}, "", `{app="test", level="info"}`, map[string]string{"g_k": "1", "g_k_": "2"}},
		"named alike":    {Config{MetadataAttrs: []string{"a.b", "a_b"}}, []slog.Attr{slog.Int("a_b", 1), slog.Int("a.b", 2)}, "", `{app="test", level="info"}`, map[string]string{"a_b": "1", "a_b_": "2"}},
		"label and all":  {Config{MetadataAll: true, LabelAttrs: []string{"x.y"}, Limits: Limits{MaxLabels: 2}}, []slog.Attr{slog.Int("x.y", 1)}, "", `{app="test", level="info"}`, map[string]string{"x_y": "1"}},
	} {
		for _, w := range []string{wireProtobuf, wireJSON} {
			tt.c.Wire = w
			var scope []func(encode.Scope) encode.Scope
			if tt.in != "" {
				scope = append(scope, inGroup(tt.in))
			}
			e, labels := encodeOne(t, tt.c, encode.Record{Message: "m", Attrs: tt.attrs}, scope...)
			if w == wireProtobuf && labels != tt.labels || !maps.Equal(e.Meta, tt.meta) {
				t.Errorf("%s %s: %s, metadata %v; want %s, %v", name, w, labels, e.Meta, tt.labels, tt.meta)
			}
		}
	}
}

// The encoder writes only metadata names that Loki does not change. Loki 3.7 responds with 500 to
// the name "_", and replaces several "_" by one, so that two names can become equal.
func TestMetadataNamesAreKeptByLoki(t *testing.T) {
	for name, tt := range map[string]struct {
		attrs []slog.Attr
		want  map[string]string
	}{
		"not of letters": {[]slog.Attr{slog.Int("名", 1), slog.Int("ключ", 2), slog.Int("_", 3), slog.Int("__", 4), slog.Int("key_", 5)},
			map[string]string{"key_": "1", "key_2": "2", "key_3": "3", "key_4": "4", "key_5": "5"}},
		"in a row":       {[]slog.Attr{slog.Int("a..b", 1), slog.Int("a__b", 2), slog.Int("a_b", 3)}, map[string]string{"a_b": "1", "a_b_": "2", "a_b_3": "3"}},
		"as made":        {[]slog.Attr{slog.Int("a", 1), slog.Int("a.", 2), slog.Int("a", 3), slog.Int("a_", 4)}, map[string]string{"a": "3", "a_": "2", "a_2": "4"}},
		"made before":    {[]slog.Attr{slog.Int("b", 1), slog.Int("é", 2), slog.Int("b.c", 3), slog.Int("b_c_", 4), slog.Int("b-c", 5)}, map[string]string{"b": "1", "key_": "2", "b_c": "3", "b_c_": "4", "b_c_3": "5"}},
		"named":          {[]slog.Attr{slog.Int("имя", 1)}, map[string]string{"key_": "1"}},
		"label too many": {[]slog.Attr{slog.Int("метка", 1)}, map[string]string{"key_": "1"}},
	} {
		for _, w := range []string{wireProtobuf, wireJSON} {
			c := Config{Wire: w, MetadataAll: true}
			switch name {
			case "named":
				c.MetadataAll, c.MetadataAttrs = false, []string{"имя"}
			case "label too many":
				c.MetadataAll, c.LabelAttrs, c.Limits.MaxLabels = false, []string{"метка"}, 2
			}
			if e, _ := encodeOne(t, c, encode.Record{Message: "m", Attrs: tt.attrs}); !maps.Equal(e.Meta, tt.want) {
				t.Errorf("%s %s: got %v, want %v", name, w, e.Meta, tt.want)
			}
		}
	}
}

// If an earlier version has stored an entry whose metadata Loki cannot store, only this entry is
// refused. The other records of its batch are stored.
func TestUnstorableMetadataIsRefusedAlone(t *testing.T) {
	p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
		for _, e := range r.streams[0].Entries {
			if _, bad := e.Meta["_"]; bad {
				return 500, `normalization for label name "_" resulted in invalid name "_"`, nil
			}
		}
		return 204, "", nil
	}}
	e := &encoded{t: t, s: sinkFor(t, p, Config{})}
	now := time.Now()
	for i := range 5 {
		e.add(nil, event(now.Add(time.Duration(i)), 0, "good"))
	}
	rec, m, _ := e.s.Encoder().Scope().Append(nil, &encode.Record{Time: now, Message: "bad"})
	rec = appendMetadata(rec, []byte("_"), []byte("v"))
	endEntry(rec, 0)
	e.Append(rec, 0, m)
	if got := e.deliver(); !slices.Equal(got, []int{5}) {
		t.Errorf("refused %v", got)
	}
	if n := e.s.observed.counts()[invalid]; n != 1 {
		t.Errorf("counted %d", n)
	}
}

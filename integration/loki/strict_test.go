package loki

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	ours "github.com/forebay-log/forebay/loki"
)

// Loki refuses or changes entries in the following cases.
func TestStrict(t *testing.T) {
	s := start(t)
	now := time.Now()

	t.Run("values of labels", func(t *testing.T) {
		values := []string{"caf\xe9", "a\ufffdb", "a\x00b", "\x7f", "\u0085", "\u2028", "`'\"\\", "{}, b=\"c\"", "\ufeff", "🙂", "\r\n\t\v\f\a\b", strings.Repeat("é", 1024)}
		for _, w := range []string{"protobuf", "json"} {
			r := &records{t: t, s: s.driver(ours.Config{Wire: w, Labels: labels("test", "values", "wire", w, "host", "caf\xe9"), LabelAttrs: []string{"x"}})}
			for i, v := range values {
				r.add(now.Add(time.Duration(i)), 0, fmt.Sprint(i), slog.String("x", v))
			}
			if err := r.send(); err != nil {
				t.Fatal(err)
			}
			for _, e := range s.await("", fmt.Sprintf(`{test="values",wire="%s"}`, w), now.Add(-time.Minute), len(values)) {
				var i int
				fmt.Sscanf(e.line, `{"msg":"%d"`, &i)
				want := strings.ReplaceAll(strings.ToValidUTF8(values[i], "?"), "\ufffd", "?")
				if e.labels["x"] != want || e.labels["host"] != "caf?" {
					t.Errorf("%q arrived as %q, %q", values[i], e.labels["x"], e.labels["host"])
				}
			}
		}
	})

	t.Run("too far behind within a second", func(t *testing.T) {
		for _, n := range []int{10, 40} { // an answer of Loki names at most ten refused entries
			test := fmt.Sprint("second", n)
			r := &records{t: t, s: s.driver(ours.Config{Labels: labels("test", test)})}
			base := now.Truncate(time.Second).Add(500 * time.Millisecond)
			r.add(base, 0, "newest")
			if err := r.send(); err != nil {
				t.Fatal(err)
			}
			r.Reset()
			for i := range n {
				r.add(base.Add(-time.Hour+time.Duration(i-n/2)*time.Second/time.Duration(n)), 0, fmt.Sprint("e", i))
			}
			e := r.send()
			if e == nil || len(e.refused) != n/2 || slices.Max(e.refused) != n/2-1 {
				t.Fatalf("%d: %+v", n, e)
			}
			if by := r.s.Stats().ByReason; int(by["too-far-behind"]) != n/2 {
				t.Errorf("%d: counted %v", n, by)
			}
			s.await("", fmt.Sprintf(`{test="%s"}`, test), now.Add(-2*time.Hour), n/2+1)
		}
	})
}

// Servers may have limits that a client does not know.
func TestStrictLimits(t *testing.T) {
	s := start(t, [2]string{`auth_enabled: false`, "auth_enabled: true"},
		[2]string{`limits_config:`, "limits_config:\n  per_tenant_override_config: overrides.yaml"}, [2]string{"file:overrides.yaml", `overrides:
  one: {max_global_streams_per_user: 1}
  labels: {max_label_names_per_series: 3}
  fewmeta: {max_structured_metadata_entries_count: 3}
  burst: {ingestion_rate_mb: 4, ingestion_burst_size_mb: 0.2}
  sburst: {per_stream_rate_limit: 3MB, per_stream_rate_limit_burst: 200KB}
  slow: {ingestion_rate_mb: 0.05, ingestion_burst_size_mb: 0.05}
  nometa: {allow_structured_metadata: false}
`})
	now := time.Now()

	t.Run("one stream", func(t *testing.T) {
		for _, unique := range []bool{true, false} {
			test := fmt.Sprint("one", unique)
			for _, w := range []string{"protobuf", "json"} {
				// The formatter writes no attributes, so all lines are equal.
				r := &records{t: t, s: s.driver(ours.Config{Wire: w, Tenant: "one", Labels: labels("test", "one"), LabelAttrs: []string{"user"}, Concurrency: 1, UniqueTimes: unique, Line: ours.Line{Formatter: messages{}}})}
				msg := test + w
				r.add(now, 0, msg)
				for i := range 4 {
					r.add(now, 0, msg, slog.Int("user", i))
				}
				if err := r.send(); err != nil {
					t.Fatal(err)
				}
				if by := r.s.Stats().ByReason; by["streams-full"] != 4 {
					t.Errorf("counted %v", by)
				}
				users := map[string]bool{}
				for _, e := range s.await("one", `{test="one"} |= "`+msg+`"`, now.Add(-time.Minute), 5) {
					users[e.labels["user"]] = true
				}
				if len(users) != 5 {
					t.Errorf("users %v", users)
				}
			}
		}
	})

	t.Run("labels", func(t *testing.T) {
		r := &records{t: t, s: s.driver(ours.Config{Tenant: "labels", Labels: labels("test", "l3"), LabelAttrs: []string{"a", "b"}})}
		r.add(now, 0, "fine", slog.Int("a", 1))
		r.add(now.Add(1), 0, "many", slog.Int("a", 1), slog.Int("b", 2))
		if err := r.send(); err != nil {
			t.Fatal(err)
		}
		if by := r.s.Stats().ByReason; by["label-too-many"] != 1 {
			t.Errorf("counted %v", by)
		}
		s.await("labels", `{test="l3"} | b="2"`, now.Add(-time.Minute), 1)
		s.await("labels", `{test="l3"}`, now.Add(-time.Minute), 2)
	})

	t.Run("burst below rate", func(t *testing.T) {
		for _, tenant := range []string{"burst", "sburst"} {
			r := &records{t: t, s: s.driver(ours.Config{Tenant: tenant, Labels: labels("test", "burst")})}
			for i := range 50 {
				r.add(now.Add(time.Duration(i)), 0, fmt.Sprintf("%02d%s", i, strings.Repeat("x", 10<<10)))
			}
			began := time.Now()
			r.deliver()
			if took := time.Since(began); took > 15*time.Second || r.s.Stats().Splits == 0 {
				t.Errorf("%s took %v, %+v", tenant, took, r.s.Stats())
			}
			s.await(tenant, `{test="burst"} | line_format "x"`, now.Add(-time.Minute), 50)
		}
	})

	t.Run("one record above the burst", func(t *testing.T) {
		if testing.Short() {
			t.Skip("takes half a minute")
		}
		r := &records{t: t, s: s.driver(ours.Config{Tenant: "slow", Labels: labels("test", "above")})}
		r.add(now, 0, strings.Repeat("x", 100<<10))
		for i := range 5 {
			r.add(now.Add(time.Duration(1+i)), 0, fmt.Sprint("good", i))
		}
		r.deliver()
		if by := r.s.Stats().ByReason; by["line-too-long"] != 1 {
			t.Errorf("counted %v", by)
		}
		s.await("slow", `{test="above"}`, now.Add(-time.Minute), 5)
	})

	t.Run("metadata", func(t *testing.T) {
		for tenant, refused := range map[string]string{"fewmeta": "[3]", "nometa": "[1 3]"} {
			r := &records{t: t, s: s.driver(ours.Config{Tenant: tenant, Labels: labels("test", "meta"), MetadataAll: true})}
			for i := range 6 {
				var a []slog.Attr
				for k := range map[int]int{1: 1, 3: 5}[i] {
					a = append(a, slog.Int(fmt.Sprint("k", k), k))
				}
				r.add(now.Add(time.Duration(i)), 0, fmt.Sprint(i), a...)
			}
			e := r.send()
			if e == nil || fmt.Sprint(e.refused) != refused || int(r.s.Stats().ByReason["invalid"]) != len(e.refused) {
				t.Fatalf("%s: %+v, counted %v", tenant, e, r.s.Stats().ByReason)
			}
			s.await(tenant, `{test="meta"}`, now.Add(-time.Minute), 6-len(e.refused))
		}
	})
}

// messages is a formatter that writes only the message.
type messages struct{}

func (messages) Scope() encode.Scope                { return messages{} }
func (messages) Codec() batch.Codec                 { return encode.JSON(nil).Codec() }
func (messages) NeedsPC() bool                      { return false }
func (messages) WithAttrs([]slog.Attr) encode.Scope { return messages{} }
func (messages) WithGroup(string) encode.Scope      { return messages{} }
func (messages) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	return append(dst, r.Message...), batch.Meta{}, nil
}

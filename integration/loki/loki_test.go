package loki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	ours "github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/slab"
)

type uuid [16]byte

func (u uuid) String() string { return fmt.Sprintf("%x", u[:]) }

// driver returns a driver that pushes to the server.
func (s *server) driver(c ours.Config) *ours.Driver {
	s.t.Helper()
	c.URL = s.url
	out, err := ours.New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

type records struct {
	t *testing.T
	s *ours.Driver
	batch.Batch
}

func (r *records) add(at time.Time, level slog.Level, msg string, attrs ...slog.Attr) {
	r.t.Helper()
	rec, m, err := r.s.Encoder().Scope().Append(nil, &encode.Record{Time: at, Level: level, Message: msg, Attrs: attrs})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Codec = r.s.Encoder().Codec()
	r.Append(rec, 0, m)
}

// An outcome is the result of sending records that are not all stored. refused contains the indexes
// of the refused records.
type outcome struct {
	refused []int
	batch.Outcome
}

// send sends the records as the outlet does: it repeats those that Loki did not settle, unless the
// answer asks to hold them. It returns nil if all records are stored.
func (r *records) send() *outcome {
	r.t.Helper()
	all := &r.Batch
	todo := batch.All().Append(nil, all.Len())
	var out outcome
	for limit := len(todo); len(todo) > 0; {
		part := todo[:min(limit, len(todo))]
		todo = todo[len(part):]
		o := push(r.t, r.s, all.Select(nil, part))
		var again []int
		for k, i := range part {
			switch {
			case o.Open.Has(k):
				again = append(again, i)
			case o.Refused.Has(k):
				out.refused = append(out.refused, i)
			}
		}
		out.Outcome = o
		switch {
		case o.Advice == batch.Hold || o.Advice == batch.HoldStreams:
			return &out
		case o.Advice == batch.Smaller || o.Advice == batch.Search:
			limit = max(1, len(again)/2)
		case len(again) > 0:
			time.Sleep(max(o.After, 100*time.Millisecond))
		}
		todo = append(again, todo...)
	}
	if len(out.refused) == 0 {
		return nil
	}
	slices.Sort(out.refused)
	return &out
}

// status returns the HTTP status of the last answer.
func (o *outcome) status() int {
	var e *httpclient.Error
	if o == nil || !errors.As(o.Why, &e) {
		return 0
	}
	return e.Status
}

// push sends b in a new session and returns the outcome.
func push(t *testing.T, s *ours.Driver, b *batch.Batch) batch.Outcome {
	t.Helper()
	l := &life{ctx: t.Context()}
	session, err := s.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if err := session.Send(b); err != nil || len(l.answers) != 1 {
		t.Fatalf("%v, %d answers", err, len(l.answers))
	}
	return l.answers[0]
}

// life implements deliver.Life for one session. It records the answers.
type life struct {
	ctx     context.Context
	answers []batch.Outcome
}

func (l *life) Context() context.Context               { return l.ctx }
func (l *life) Answer(_ *batch.Batch, o batch.Outcome) { l.answers = append(l.answers, o) }
func (l *life) End(error)                              {}

// deliver sends the records through an Output until Loki has accepted all of them. A rate limit
// delays that. All records are in one slab and therefore in one batch.
func (r *records) deliver() {
	r.t.Helper()
	codec := r.s.Encoder().Codec()
	out, err := deliver.NewOutput(r.s, &deliver.OutputOptions{
		Codec:   codec,
		Slab:    slab.Options{SlabBytes: 16 << 20, SlabCount: 2, FlushInterval: -1},
		Deliver: deliver.Options{Retry: &deliver.RetryOptions{Min: 200 * time.Millisecond, Max: time.Second}},
		OnError: func(batch.Event) {},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	defer out.Shutdown(ctx)
	for _, rec := range r.All() {
		if err := out.WriteRecord(rec.Data, rec.Meta); err != nil {
			r.t.Fatal(err)
		}
	}
}

func labels(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

func TestLoki(t *testing.T) {
	s := start(t)
	now := time.Now()

	t.Run("types round trip", func(t *testing.T) {
		inner := fmt.Errorf("outer: %w", errors.New("inner"))
		attrs := []slog.Attr{slog.Int("i", -1), slog.Uint64("u", math.MaxUint64), slog.Float64("f", 0.1), slog.Bool("b", true),
			slog.Duration("d", 1500*time.Millisecond), slog.Time("t", time.Unix(1, 2)), slog.Any("id", uuid{1}), slog.Float64("nan", math.NaN()),
			slog.String("s", "quote \" back \\ newline \n unicode é 🙂"), slog.Any("err", inner), slog.Group("g", slog.Int("x", 1)),
			slog.Any("in", struct {
				Err error
				D   time.Duration
				NaN []any
			}{inner, time.Second, []any{math.NaN(), uuid{1}}})}
		for _, w := range []string{"protobuf", "json", "json+gzip"} {
			r := &records{t: t, s: s.driver(ours.Config{Wire: w, Labels: labels("test", "types", "wire", strings.ReplaceAll(w, "+", "_")), Line: ours.Line{Errors: "object"}})}
			at := now.Add(123456789)
			r.add(at, slog.LevelWarn, "hi", attrs...)
			if err := r.send(); err != nil {
				t.Fatal(err)
			}
			got := s.await("", fmt.Sprintf(`{test="types",wire="%s"}`, strings.ReplaceAll(w, "+", "_")), now.Add(-time.Minute), 1)
			if len(got) != 1 {
				continue
			}
			want := `{"msg":"hi","i":-1,"u":18446744073709551615,"f":0.1,"b":true,"d":1500000000,"t":"1970-01-01T00:00:01.000000002Z",` +
				`"id":"01000000-0000-0000-0000-000000000000","nan":"NaN","s":"quote \" back \\ newline \n unicode é 🙂",` +
				`"err":{"Type":"*fmt.wrapError","Message":"outer: inner","Inner":{"Type":"*errors.errorString","Message":"inner"}},"g":{"x":1},` +
				`"in":{"Err":"outer: inner","D":1000000000,"NaN":["NaN","01000000-0000-0000-0000-000000000000"]}}`
			if got[0].line != want || !got[0].at.Equal(at) || got[0].labels["level"] != "warn" {
				t.Errorf("%s: got %+v\nwant %s at %v", w, got[0], want, at.UTC())
			}
		}
	})

	t.Run("labels and metadata", func(t *testing.T) {
		r := &records{t: t, s: s.driver(ours.Config{Labels: labels("test", "labels", "a.b", "sanitised", "quote", "x\"y\\z\n"),
			LabelAttrs: []string{"region", "http.method"}, MetadataAttrs: []string{"user", "n"}, TraceID: "metadata"})}
		r.add(now, 0, "hi", slog.String("region", "eu"), slog.Group("http", slog.String("method", "GET")), slog.String("user", "jané"), slog.Int("n", 7), slog.String("trace_id", "abc"))
		if err := r.send(); err != nil {
			t.Fatal(err)
		}
		got := s.await("", `{test="labels"}`, now.Add(-time.Minute), 1)
		for k, v := range labels("a_b", "sanitised", "quote", "x\"y\\z\n", "region", "eu", "http_method", "GET", "user", "jané", "n", "7", "trace_id", "abc", "level", "info") {
			if len(got) == 1 && got[0].labels[k] != v {
				t.Errorf("%s is %q, want %q", k, got[0].labels[k], v)
			}
		}
		if got := s.query("", `{test="labels", region="eu"} | user="jané"`, now.Add(-time.Minute)); len(got) != 1 {
			t.Errorf("metadata cannot be queried: %v", got)
		}
	})

	t.Run("bad label name and numeric metadata fail a request", func(t *testing.T) {
		ns := now.UnixNano()
		for _, bad := range []string{
			fmt.Sprintf(`{"streams":[{"stream":{"test":"trap","good":"1"},"values":[["%d","good"]]},{"stream":{"test":"trap","a.b":"1"},"values":[["%d","bad"]]}]}`, ns, ns),
			fmt.Sprintf(`{"streams":[{"stream":{"test":"trap","good":"1"},"values":[["%d","good"]]},{"stream":{"test":"trap"},"values":[["%d","bad",{"n":1}]]}]}`, ns, ns),
		} {
			if status, text := s.push("", bad); status != 400 {
				t.Errorf("unexpected answer: %d %s", status, text)
			}
		}
		if got := s.query("", `{test="trap"}`, now.Add(-time.Minute)); len(got) != 0 {
			t.Errorf("stored %v", got)
		}
	})

	t.Run("equal entries", func(t *testing.T) {
		for _, unique := range []bool{false, true} {
			r := &records{t: t, s: s.driver(ours.Config{UniqueTimes: unique, Labels: labels("test", "equal entries", "unique", fmt.Sprint(unique))})}
			for range 3 {
				r.add(now, 0, "twin")
			}
			for range 2 { // sending again stores no further entries
				if err := r.send(); err != nil {
					t.Fatal(err)
				}
			}
			want := 1
			if unique {
				want = 3
			}
			s.await("", fmt.Sprintf(`{test="equal entries",unique="%v"}`, unique), now.Add(-time.Minute), want)
		}
	})

	t.Run("order", func(t *testing.T) {
		// A query returns entries with equal times in any order, so the entries get unique times.
		r := &records{t: t, s: s.driver(ours.Config{UniqueTimes: true, Labels: labels("test", "order")})}
		for i := range 200 {
			r.add(now.Add(time.Duration(i/10)*time.Millisecond), 0, fmt.Sprintf("%03d", i))
		}
		if err := r.send(); err != nil {
			t.Fatal(err)
		}
		for i, e := range s.await("", `{test="order"}`, now.Add(-time.Minute), 200) {
			if want := fmt.Sprintf(`{"msg":"%03d"}`, i); e.line != want {
				t.Fatalf("%d is %s", i, e.line)
			}
		}
	})

	t.Run("too far behind is answered with 204", func(t *testing.T) {
		// If the last stream of a request is accepted, Loki answers 204 even if it has refused
		// entries of earlier streams.
		seed := fmt.Sprintf(`{"streams":[{"stream":{"test":"behind","s":"a"},"values":[["%d","newest"]]}]}`, now.UnixNano())
		if status, text := s.push("", seed); status != 204 {
			t.Fatal(status, text)
		}
		old := now.Add(-5 * time.Hour)
		trap := fmt.Sprintf(`{"streams":[{"stream":{"test":"behind","s":"a"},"values":[["%d","lost"]]},{"stream":{"test":"behind","s":"b"},"values":[["%d","good"]]}]}`, old.UnixNano(), now.UnixNano())
		if status, text := s.push("", trap); status != 204 {
			t.Errorf("unexpected answer: %d %s", status, text)
		}
		// The driver sends one request per stream. Therefore it receives the error, and only the
		// refused entry is counted.
		r := &records{t: t, s: s.driver(ours.Config{Labels: labels("test", "behind2")})}
		r.add(now, 0, "newest")
		r.add(now, slog.LevelWarn, "good")
		if err := r.send(); err != nil {
			t.Fatal(err)
		}
		r.Reset()
		r.add(old, 0, "behind")
		r.add(now.Add(1), 0, "good 2")
		r.add(now.Add(2), slog.LevelWarn, "good 3")
		if e := r.send(); e == nil || fmt.Sprint(e.refused) != "[0]" {
			t.Errorf("got %+v", e)
		}
		if n := r.s.Stats().ByReason["too-far-behind"]; n != 1 {
			t.Errorf("counted %d", n)
		}
		s.await("", `{test="behind2"}`, now.Add(-6*time.Hour), 4)
	})

	t.Run("too old, too new, too long", func(t *testing.T) {
		for _, check := range []bool{true, false} { // true: the driver refuses entries before sending; false: Loki refuses them
			c := ours.Config{Labels: labels("test", "limits", "check", fmt.Sprint(check)), Limits: ours.Limits{LongLines: "refuse"}}
			if !check {
				c.Limits.MaxAge, c.Limits.MaxFuture, c.Limits.MaxLine = -1, -1, 1<<20
			}
			r := &records{t: t, s: s.driver(c)}
			r.add(now, 0, "good")
			r.add(now.Add(-8*24*time.Hour), 0, "old")
			r.add(now.Add(time.Hour), 0, "new")
			r.add(now, 0, strings.Repeat("x", 300<<10))
			r.add(now.Add(1), 0, "good")
			if e := r.send(); e == nil || fmt.Sprint(e.refused) != "[1 2 3]" {
				t.Errorf("check %v: %+v", check, e)
			}
			by := r.s.Stats().ByReason
			if by["too-old"] != 1 || by["too-new"] != 1 || by["line-too-long"] != 1 {
				t.Errorf("check %v: counted %v", check, by)
			}
			s.await("", fmt.Sprintf(`{test="limits",check="%v"}`, check), now.Add(-time.Minute), 2)
		}
		r := &records{t: t, s: s.driver(ours.Config{Labels: labels("test", "truncated")})}
		r.add(now, 0, strings.Repeat("x", 300<<10))
		if err := r.send(); err != nil {
			t.Fatal(err)
		}
		s.await("", `{test="truncated"}`, now.Add(-time.Minute), 1)
	})

	t.Run("more than 4 MiB is split", func(t *testing.T) {
		r := &records{t: t, s: s.driver(ours.Config{Labels: labels("test", "large"), BatchBytes: 8 << 20, Limits: ours.Limits{MaxRequestBytes: 64 << 20}})}
		for i := range 50 {
			r.add(now.Add(time.Duration(i)), 0, fmt.Sprintf("%02d%s", i, strings.Repeat("x", 100<<10)))
		}
		r.deliver()
		if r.s.Stats().Splits == 0 {
			t.Error("Loki accepted the batch: nothing was split")
		}
		s.await("", `{test="large"} | line_format "x"`, now.Add(-time.Minute), 50)
	})

	t.Run("too many labels become metadata", func(t *testing.T) {
		c := ours.Config{Labels: labels("test", "many")}
		var attrs []slog.Attr
		for i := range 20 {
			c.LabelAttrs = append(c.LabelAttrs, fmt.Sprintf("l%02d", i))
			attrs = append(attrs, slog.Int(fmt.Sprintf("l%02d", i), i))
		}
		r := &records{t: t, s: s.driver(c)}
		r.add(now, 0, "x", attrs...)
		if err := r.send(); err != nil {
			t.Fatal(err)
		}
		got := s.await("", `{test="many"}`, now.Add(-time.Minute), 1)
		if len(got) == 1 && got[0].labels["l19"] != "19" {
			t.Errorf("labels %v", got[0].labels)
		}
	})
}

func TestTenantsAndLimits(t *testing.T) {
	s := start(t, [2]string{`auth_enabled: false`, "auth_enabled: true"},
		[2]string{`limits_config:`, "limits_config:\n  per_tenant_override_config: overrides.yaml"}, [2]string{"file:overrides.yaml", `overrides:
  slow: {ingestion_rate_mb: 0.05, ingestion_burst_size_mb: 0.05}
  few: {max_global_streams_per_user: 3}
  blocked: {block_ingestion_until: "2099-01-01T00:00:00Z", block_ingestion_status_code: 260}
`})
	now := time.Now()

	t.Run("tenants", func(t *testing.T) {
		r := &records{t: t, s: s.driver(ours.Config{Tenant: "one", TenantAttr: "org", Labels: labels("test", "tenants")})}
		r.add(now, 0, "a")
		r.add(now, 0, "b", slog.String("org", "two"))
		if err := r.send(); err != nil {
			t.Fatal(err)
		}
		for tenant, want := range labels("one", "a", "two", "b") {
			got := s.await(tenant, `{test="tenants"}`, now.Add(-time.Minute), 1)
			if len(got) == 1 && got[0].line != fmt.Sprintf(`{"msg":"%s"}`, want) {
				t.Errorf("%s has %s", tenant, got[0].line)
			}
		}
		none := &records{t: t, s: s.driver(ours.Config{Labels: labels("test", "tenants")})}
		none.add(now, 0, "x")
		if e := none.send(); e.status() != 401 || e.Advice != batch.Hold {
			t.Errorf("without a tenant: %+v", e)
		}
	})

	t.Run("a forbidden tenant", func(t *testing.T) {
		// A proxy in front of Loki rejects some tenants. Loki itself rejects requests without a
		// tenant.
		target, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		to := httputil.NewSingleHostReverseProxy(target)
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Scope-OrgID") == "bad" {
				http.Error(w, "not you", http.StatusForbidden)
				return
			}
			to.ServeHTTP(w, r)
		}))
		defer proxy.Close()
		for _, wire := range []string{"protobuf", "json", "json+gzip"} {
			front := *s
			front.url = proxy.URL
			p := front.driver(ours.Config{TenantAttr: "org", Labels: labels("test", "forbidden "+wire), Wire: wire})
			push := func(org string) *outcome {
				r := &records{t: t, s: p}
				r.add(time.Now(), 0, "from "+org, slog.String("org", org))
				return r.send()
			}
			if e := push("bad"); e.status() != 403 || e.Advice != batch.Hold {
				t.Errorf("%s: no other tenant was accepted before: %+v", wire, e)
			}
			behind := &records{t: t, s: p} // sent after the rejected pushes
			behind.add(time.Now(), 0, "from good", slog.String("org", "good"))
			if e := push("bad"); e.status() != 403 || e.Advice != batch.HoldStreams {
				t.Errorf("%s: another tenant may be accepted: %+v", wire, e)
			}
			if e := push(""); e.status() != 401 || e.Advice != batch.HoldStreams {
				t.Errorf("%s: no tenant: %+v", wire, e)
			}
			if err := behind.send(); err != nil {
				t.Errorf("%s: %v", wire, err)
			}
			s.await("good", fmt.Sprintf(`{test="forbidden %s"}`, wire), now.Add(-time.Minute), 1)
		}
	})

	t.Run("blocked ingestion", func(t *testing.T) {
		if status, _ := s.push("blocked", fmt.Sprintf(`{"streams":[{"stream":{"a":"b"},"values":[["%d","x"]]}]}`, now.UnixNano())); status != 260 {
			t.Errorf("unexpected status: %d", status)
		}
		r := &records{t: t, s: s.driver(ours.Config{Tenant: "blocked", Labels: labels("test", "blocked")})}
		r.add(now, 0, "x")
		if e := r.send(); e.status() != 260 || e.Advice != batch.Hold {
			t.Errorf("got %+v", e)
		}
	})

	t.Run("rate and burst", func(t *testing.T) {
		// With a burst limit of 50 KB, Loki never accepts 200 KB at once.
		s2 := s.driver(ours.Config{Tenant: "slow", Labels: labels("test", "rate")})
		r := &records{t: t, s: s2}
		for i := range 20 {
			r.add(now.Add(time.Duration(i)), 0, fmt.Sprintf("%02d%s", i, strings.Repeat("x", 10<<10)))
		}
		r.deliver()
		if s2.Stats().Splits == 0 {
			t.Error("Loki accepted the batch: nothing was split")
		}
		s.await("slow", `{test="rate"} | line_format "x"`, now.Add(-time.Minute), 20)
	})

	t.Run("streams", func(t *testing.T) {
		r := &records{t: t, s: s.driver(ours.Config{Tenant: "few", Labels: labels("test", "streams"), LabelAttrs: []string{"user"}, Concurrency: 1})}
		r.add(now, 0, "base")
		for i := range 6 {
			r.add(now.Add(time.Duration(i)), 0, fmt.Sprint(i), slog.Int("user", i))
		}
		if err := r.send(); err != nil {
			t.Fatal(err)
		}
		if r.s.Stats().ByReason["streams-full"] == 0 {
			t.Error("Loki refused no stream")
		}
		s.await("few", `{test="streams"}`, now.Add(-time.Minute), 7)
	})
}

// Loki is killed and restarted while records are written. All records are stored, and at most the
// records of one batch are stored twice.
func TestRestart(t *testing.T) {
	const total = 100_000
	s := start(t)
	began := time.Now()
	h, err := newHandler(ours.Config{
		URL:         s.url,
		Labels:      labels("test", "restart"),
		UniqueTimes: true,
		BatchAge:    100 * time.Millisecond,
	}, forebay.WhenFull("block"), forebay.OnError(func(batch.Event) {}), forebay.Delivery(func(o *deliver.OutputOptions) {
		o.Deliver.Retry = &deliver.RetryOptions{Min: 100 * time.Millisecond, Max: time.Second}
	}))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(h)
	down := make(chan struct{})
	for i := range total {
		if i == total/3 {
			s.kill()
			go func() {
				defer close(down)
				time.Sleep(time.Second)
				s.up()
			}()
		}
		if i == total/3+1000 {
			<-down
		}
		log.Info("record", "i", i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	rep, err := h.Close(ctx)
	if err != nil || rep.Delivered != total {
		t.Fatalf("%v, %v", rep, err)
	}
	seen := make([]int, total)
	from, n := began.Add(-time.Second), 0
	for {
		got := s.query("", `{test="restart"}`, from)
		for _, e := range got {
			var i int
			if _, err := fmt.Sscanf(e.line, `{"msg":"record","i":%d}`, &i); err != nil {
				t.Fatal(e.line)
			}
			seen[i]++
			n++
		}
		if len(got) < 5000 {
			break
		}
		from = got[len(got)-1].at.Add(1)
	}
	missing, twice := 0, 0
	for _, k := range seen {
		if k == 0 {
			missing++
		} else if k > 1 {
			twice++
		}
	}
	const maxDuplicates = (1 << 20) / 40 // number of records of this length in a batch
	if missing > 0 || twice > maxDuplicates {
		t.Errorf("found %d entries: %d records are missing, %d are duplicated", n, missing, twice)
	}
	t.Logf("%d entries, %d records duplicated, %+v", n, twice, h.Stats())
}

package loki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
)

// An eventLog is an OnError function that collects events.
type eventLog struct {
	mu     sync.Mutex
	events []batch.Event
}

func (o *eventLog) add(e batch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// of returns the events with the given Op.
func (o *eventLog) of(op string) (out []batch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if e.Op == op {
			out = append(out, e)
		}
	}
	return out
}

// The client stays below a rate limit that Loki has reported: all records arrive in about the time
// that the limit requires, and few requests are refused.
func TestRequestsStayBelowReportedRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const rate, records, size = 100e3, 6000, 1000
		lim := &bucket{rate: rate, burst: 2 * rate, have: 2 * rate, at: time.Now()}
		var mu sync.Mutex
		stored, refused := map[string]bool{}, 0
		p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
			mu.Lock()
			defer mu.Unlock()
			total, n := 0, 0
			for _, s := range r.streams {
				for _, e := range s.Entries {
					total, n = total+len(e.Line), n+1
				}
			}
			if !lim.allow(total) {
				refused++
				return 429, fmt.Sprintf("ingestion rate limit exceeded for user x (limit: %.0f bytes/sec) while attempting to ingest '%d' lines totaling '%d' bytes, reduce", rate, n, total), nil
			}
			for _, s := range r.streams {
				for _, e := range s.Entries {
					stored[e.Line] = true
				}
			}
			return 204, "", nil
		}}
		h := handlerFor(t, p, Config{BatchBytes: 64 << 10, LabelAttrs: []string{"n"}}, forebay.WhenFull("block"))
		log := slog.New(h)
		began := time.Now()
		for i := range records {
			log.Info(fmt.Sprintf("%06d", i)+strings.Repeat("x", size-50), "n", i%3)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		least := time.Duration(float64(records*size)/rate) * time.Second
		st := h.Sink.Driver.Stats()
		if len(stored) != records || took > least*3/2 || refused > 6 || st.Paced == 0 {
			t.Errorf("%d stored, %d requests refused, %v where %v is the least; %+v", len(stored), refused, took, least, st)
		}
		t.Logf("%d requests, %d refused, took %v, least %v", st.Requests, refused, took, least)
		if _, err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A reported rate limit expires after 15 minutes without a refusal.
func TestRateLimitExpires(t *testing.T) {
	now := time.Unix(1e9, 0)
	var pc pace
	if wait, ok := pc.reserve(1<<20, time.Second, now); wait != 0 || !ok {
		t.Errorf("without a limit: %v, %v", wait, ok)
	}
	pc.noteLimit(1000, 500, now)
	if got := pc.rateAt(now); got != 900 {
		t.Errorf("below a limit of 1000: %v", got)
	}
	before := 0.0
	for m := range 15 {
		got := pc.rateAt(now.Add(time.Duration(m) * time.Minute))
		if got < before {
			t.Errorf("minute %d: rate %v after %v", m, got, before)
		}
		before = got
	}
	if got := pc.rateAt(now.Add(16 * time.Minute)); got != 0 {
		t.Errorf("after 16 minutes: got rate %v, want 0", got)
	}
	pc.noteLimit(1000, 500, now.Add(6*time.Minute)) // a higher rate was accepted, as with several distributors
	if got := pc.rateAt(now.Add(6 * time.Minute)); got < 2000 {
		t.Errorf("with several distributors: got rate %v, want 2000 or more", got)
	}
	if wait, ok := pc.reserve(1<<20, time.Second, now.Add(6*time.Minute+2*time.Second)); wait != 0 || !ok {
		t.Errorf("the first request must not wait: got %v, %v", wait, ok)
	}
	if wait, ok := pc.reserve(1, time.Second, now.Add(6*time.Minute+2*time.Second)); ok {
		t.Errorf("the second request is not refused: wait %v", wait)
	}
}

// A label with too many values becomes metadata, and one event reports it. Other labels do not
// change.
func TestLabelWithTooManyValuesBecomesMetadata(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, events := new(peer), new(eventLog)
		h := handlerFor(t, p, Config{LabelAttrs: []string{"user", "region"}, Limits: Limits{MaxLabelValues: 20}}, forebay.OnError(events.add))
		log := slog.New(h)
		for i := range 100 {
			log.Info("x", "user", i, "region", "eu", "i", i)
		}
		log.Info("x", "user", 3, "region", "us", "i", 100)
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // wait until the event is posted
		streams, metadata, all := map[string]bool{}, 0, 0
		for _, st := range p.streams() {
			streams[st.Labels] = true
			for _, e := range st.Entries {
				all++
				if e.Meta["user"] != "" {
					metadata++
				}
				if !strings.Contains(st.Labels, "region=") || e.Meta["user"] == "" != strings.Contains(st.Labels, "user=") {
					t.Fatalf("%s has %+v", st.Labels, e)
				}
			}
		}
		if all != 101 || metadata != 81 || len(streams) != 22 {
			t.Errorf("%d records, %d with metadata, %d streams", all, metadata, len(streams))
		}
		if got := events.of("label-values"); len(got) != 1 || !strings.Contains(got[0].String(), "user") {
			t.Errorf("reported %v", got)
		}
		if n := h.Sink.Driver.Stats().ByReason["label-values"]; n != 81 {
			t.Errorf("counted %d", n)
		}
		if _, err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A record that is too old becomes a dead letter, is dropped, or gets the current time, depending
// on Limits.TooOld. It can be older than MaxAge, or Loki can refuse it because of its age.
func TestRecordsTooOldFollowTooOldOption(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON} {
		for _, choice := range []string{"", "drop", "now"} {
			t.Run(w+choice, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					events := new(eventLog)
					var mu sync.Mutex
					down, stored, deadLetters := true, map[string]gotEntry{}, 0
					var order []string
					p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
						mu.Lock()
						defer mu.Unlock()
						var far []string
						n := len(r.streams[0].Entries)
						for _, e := range r.streams[0].Entries {
							if time.Since(e.Time) > 2*time.Hour {
								far = append(far, fmt.Sprintf("entry with timestamp %s ignored, reason: 'entry too far behind, entry timestamp is: %s, oldest acceptable timestamp is: %s',",
									e.Time.UTC().Format("2006-01-02 15:04:05.999999999 -0700 MST"), e.Time.UTC().Format(time.RFC3339), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)))
								continue
							}
							if down && e.Meta["original_time"] != "" {
								down = false
								return 503, "", nil
							}
							stored[e.Line] = e
							order = append(order, e.Line)
						}
						if len(far) > 0 {
							return 400, strings.Join(far, "\n") + fmt.Sprintf("\nuser 'fake', total ignored: %d out of %d for stream: {}", len(far), n), nil
						}
						return 204, "", nil
					}}
					h := handlerFor(t, p, Config{
						Wire:   w,
						Limits: Limits{TooOld: choice, MaxAge: 24 * time.Hour, LongLines: longLinesRefuse},
						Line:   Line{Body: bodyLogfmt},
					}, forebay.OnError(events.add), forebay.Delivery(func(o *deliver.OutputOptions) {
						o.Deliver.DeadLetter = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
							mu.Lock()
							defer mu.Unlock()
							deadLetters += b.Len()
							return batch.Outcome{}
						})
					}))
					now := time.Now()
					at := func(ago time.Duration, msg string) {
						r := slog.NewRecord(now.Add(-ago), slog.LevelInfo, msg, 0)
						if err := h.Handle(context.Background(), r); err != nil {
							t.Fatal(err)
						}
					}
					at(48*time.Hour, "old1")
					at(5*time.Hour, "far1")
					at(4*time.Hour, "far2")
					at(0, "good")
					at(30*time.Hour, "old2")
					at(0, strings.Repeat("long", 100<<10))
					if err := h.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
					rep, err := h.Close(t.Context())
					if err != nil && !strings.Contains(err.Error(), "poison") && choice == "now" {
						t.Error(err)
					}
					synctest.Wait() // wait until the event is posted
					mu.Lock()
					defer mu.Unlock()
					wantStored, wantDeadLetters := 1, 5
					switch choice {
					case "drop":
						wantDeadLetters = 1
					case "now":
						wantStored, wantDeadLetters = 5, 1
						e := stored["msg=far1"]
						if e.Meta["original_time"] != now.Add(-5*time.Hour).UTC().Format(time.RFC3339Nano) || time.Since(e.Time) > time.Hour {
							t.Errorf("the entry far1 is %+v", e)
						}
						if i, k := slices.Index(order, "msg=far1"), slices.Index(order, "msg=far2"); i < 0 || k < i {
							t.Errorf("order %v", order)
						}
						if n := h.Sink.Driver.Stats().ByReason["restamped"]; n != 4 {
							t.Errorf("counted %d", n)
						}
						if got := events.of("too-old"); len(got) != 1 {
							t.Errorf("reported %v", got)
						}
					}
					if len(stored) != wantStored || deadLetters != wantDeadLetters || rep.Delivered != uint64(wantStored) || rep.Dropped[batch.Poison] != uint64(6-wantStored) {
						t.Errorf("%d stored, %d dead letters: %v", len(stored), deadLetters, rep)
					}
				})
			})
		}
	}
}

// With EagerFirst, the first record is sent immediately, and later records wait for their batch.
func TestEagerFirstSendsFirstRecordAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := new(peer)
		h := handlerFor(t, p, Config{EagerFirst: true, BatchAge: 10 * time.Second})
		log := slog.New(h)
		log.Info("one")
		time.Sleep(300 * time.Millisecond)
		if got := p.lines(); len(got) != 1 {
			t.Errorf("first batch: got %v", got)
		}
		for i := range 5 {
			log.Error("more", "i", i)
			time.Sleep(time.Second)
		}
		if got := p.lines(); len(got) != 1 {
			t.Errorf("second batch: got %v", got)
		}
		if _, err := h.Close(t.Context()); err != nil || len(p.requests()) != 2 || len(p.lines()) != 6 {
			t.Error(err, p.lines())
		}
	})
}

// With OutOfLine, attributes that become labels or metadata are not in the line.
func TestOutOfLineRemovesLabelsFromLine(t *testing.T) {
	for _, c := range []Config{
		{LabelAttrs: []string{"region", "http.method"}, MetadataAttrs: []string{"user"}},
		{LabelAttrs: []string{"region", "http.method"}, MetadataAttrs: []string{"user"}, Wire: wireJSON, Line: Line{Body: bodyLogfmt}},
	} {
		c.Line.OutOfLine = true
		e, labels := encodeOne(t, c, event(time.Now(), 0, "m", slog.String("a", "b"), slog.Group("http", "method", "GET", "code", 200), slog.String("region", "eu")),
			with(slog.String("user", "u"), slog.Int("n", 1)))
		want := `{"msg":"m","n":1,"a":"b","http":{"code":200}}`
		if c.Line.Body == bodyLogfmt {
			want = `msg=m n=1 a=b http.code=200`
		}
		if e.Line != want || e.Meta["user"] != "u" || !strings.Contains(labels, "eu") || !strings.Contains(labels, "GET") {
			t.Errorf("%s: %+v", labels, e)
		}
		e, _ = encodeOne(t, c, event(time.Now(), 0, "m", slog.String("method", "GET")), inGroup("http"))
		if want := map[string]string{"": `{"msg":"m"}`, bodyLogfmt: "msg=m"}[c.Line.Body]; e.Line != want {
			t.Errorf("in a group: %s", e.Line)
		}
	}
	e, _ := encodeOne(t, Config{MetadataAll: true, Line: Line{OutOfLine: true}}, event(time.Now(), 0, "m", slog.Group("g", "x", 1)), with(slog.Int("n", 1)))
	if e.Line != `{"msg":"m"}` || e.Meta["g_x"] != "1" || e.Meta["n"] != "1" {
		t.Errorf("all: %+v", e)
	}
	e, _ = encodeOne(t, Config{LabelAttrs: []string{"region"}}, event(time.Now(), 0, "m", slog.String("region", "eu")))
	if e.Line != `{"msg":"m","region":"eu"}` {
		t.Errorf("by default: %+v", e)
	}
}

// The label and the line contain the level names of Config.LevelNames.
func TestLevelNamesRenameLevels(t *testing.T) {
	names := map[string]string{"warn": "warning", "fatal": `c"rit`}
	if _, labels := encodeOne(t, Config{LevelNames: names}, event(time.Now(), slog.LevelWarn, "m")); !strings.Contains(labels, `level="warning"`) {
		t.Error(labels)
	}
	if _, labels := encodeOne(t, Config{LevelNames: names}, event(time.Now(), slog.LevelError, "m")); !strings.Contains(labels, `level="error"`) {
		t.Error(labels)
	}
	for _, w := range []string{wireProtobuf, wireJSON} {
		c := Config{LevelNames: names, NoLevelLabel: true, Labels: map[string]string{"app": "x"}, Wire: w}
		if e, _ := encodeOne(t, c, event(time.Now(), slog.LevelError+4, "m")); e.Line != `{"msg":"m","level":"c\"rit"}` {
			t.Error(e.Line)
		}
		c.Line.Body = bodyLogfmt
		if e, _ := encodeOne(t, c, event(time.Now(), slog.LevelError+4, "m")); e.Line != `level="c\"rit" msg=m` {
			t.Error(e.Line)
		}
		if e, _ := encodeOne(t, c, event(time.Now(), slog.LevelInfo, "m")); e.Line != `level=info msg=m` {
			t.Error(e.Line)
		}
	}
}

// If Loki has no room for a stream of the records' level, the records move to a stream of another
// level. If there is none, they become dead letters after an hour.
func TestRecordsMoveToStreamOfOtherLevel(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		known := `level="info"`
		deadLetters := 0
		metas := map[string]string{}
		p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
			mu.Lock()
			defer mu.Unlock()
			l := r.streams[0].Labels
			if !strings.Contains(l, known) || strings.Contains(l, "region") {
				return 429, "Maximum active stream limit exceeded when trying to create stream " + l, nil
			}
			for _, e := range r.streams[0].Entries {
				metas[e.Line] = e.Meta["level"] + e.Meta["region"]
			}
			return 204, "", nil
		}}
		h := handlerFor(t, p, Config{
			LabelAttrs: []string{"region"},
			Line:       Line{Body: bodyLogfmt},
		}, forebay.Delivery(func(o *deliver.OutputOptions) {
			o.CloseTimeout = time.Minute
			o.Deliver.DeadLetter = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
				mu.Lock()
				defer mu.Unlock()
				deadLetters += b.Len()
				return batch.Outcome{}
			})
		}))
		log := slog.New(h)
		log.Info("one")
		time.Sleep(5 * time.Second)
		log.Error("two", "region", "eu")
		log.Error("three")
		time.Sleep(5 * time.Minute)
		mu.Lock()
		if metas["msg=one"] != "" || metas["msg=\"two\" region=eu"]+metas["msg=two region=eu"] != "erroreu" || metas["msg=three"] != "error" {
			t.Errorf("got %q", metas)
		}
		known = "none"
		mu.Unlock()
		log.Error("four")
		time.Sleep(30 * time.Minute)
		mu.Lock()
		if deadLetters != 0 {
			t.Errorf("%d dead letters too early", deadLetters)
		}
		mu.Unlock()
		time.Sleep(time.Hour)
		mu.Lock()
		if deadLetters != 1 {
			t.Errorf("got %d dead letters, want 1", deadLetters)
		}
		mu.Unlock()
		rep, _ := h.Close(t.Context())
		if rep.Delivered != 3 || rep.Dropped[batch.Poison] != 1 {
			t.Errorf("%v", rep)
		}
	})
}

// forebay.ReplaceAttr is applied before labels, metadata and the line, and can convert errors.
func TestReplaceAttrPrecedesLabels(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := new(peer)
		c := Config{URL: "http://loki.test", LabelAttrs: []string{"region", "host"}, MetadataAttrs: []string{"user"}, HTTP: httpclient.Options{Client: &http.Client{Transport: p}}}
		h, err := newHandler(c, forebay.OnError(quiet), forebay.ReplaceAttr(func(_ []string, a slog.Attr) slog.Attr {
			switch err, _ := a.Value.Any().(error); {
			case a.Key == "user" || a.Key == "region":
				return slog.String(a.Key, "***")
			case a.Key == "host":
				return slog.Attr{}
			case err != nil:
				return slog.Group(a.Key, "what", err.Error(), "kind", fmt.Sprintf("%T", err))
			}
			return a
		}))
		if err != nil {
			t.Fatal(err)
		}
		slog.New(h).With("user", "jane").Info("m", "region", "eu", "host", "h", "err", errors.New("no"))
		if _, err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
		s := p.requests()[0].streams[0]
		if want := `{"msg":"m","user":"***","region":"***","err":{"what":"no","kind":"*errors.errorString"}}`; s.Entries[0].Line != want ||
			s.Entries[0].Meta["user"] != "***" || strings.Contains(s.Labels, "host") || !strings.Contains(s.Labels, `region="***"`) {
			t.Errorf("%+v", s)
		}
	})
}

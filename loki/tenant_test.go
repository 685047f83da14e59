package loki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A gateway lets tenants in or not, as reverse proxies in front of Loki do.
type gateway struct {
	mu     sync.Mutex
	denied map[string]int // status by tenant; "*": all others
	empty  int            // status of a push of nothing
	asked  []string       // tenants of pushes of nothing
	lines  map[string][]string
}

func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	tenant := r.Header.Get("X-Scope-Orgid")
	p := new(peer)
	if _, err := p.RoundTrip(r); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	req := p.requests()[0]
	nothing := req.err == nil && len(req.streams) == 0
	if nothing {
		g.asked = append(g.asked, tenant)
	}
	status, ok := g.denied[tenant]
	switch {
	case !ok && g.denied["*"] != 0:
		status, ok = g.denied["*"], true
	case !ok && nothing:
		status, ok = g.empty, true
	case !ok:
		status = 204
		for _, s := range req.streams {
			for _, e := range s.Entries {
				g.lines[tenant] = append(g.lines[tenant], e.Line)
			}
		}
	}
	if status == 0 {
		return nil, errors.New("no answer")
	}
	r.Body = nil
	return answerOf(r, status, nil)
}

// TestForbiddenTenant: what is refused for its tenant is told from what is refused
// for the credentials by what becomes of other tenants.
func TestForbiddenTenant(t *testing.T) {
	for _, wire := range []Wire{Protobuf, JSON, JSONGzip} {
		synctest.Test(t, func(t *testing.T) {
			g := &gateway{denied: map[string]int{"b": 403, "": 401}, empty: 422, lines: map[string][]string{}}
			s := sinkFor(t, g, Config{TenantAttr: "t", Concurrency: 1, Wire: wire})
			send := func(tenants ...string) batch.SendError {
				time.Sleep(time.Millisecond)
				e := &encoded{t: t, s: s}
				for _, tenant := range tenants {
					e.add(nil, event(time.Now(), 0, "x", slog.String("t", tenant)))
				}
				if err := e.send(); err != nil {
					return batch.Inspect(err)
				}
				return batch.SendError{Kind: 99}
			}
			expect := func(what string, got batch.SendError, kind batch.Kind, records ...int) {
				t.Helper()
				if got.Kind != kind || !slices.Equal(got.Records, records) {
					t.Errorf("%s: %s: got %v %v (%v), want %v %v", wire, what, got.Kind, got.Records, got.Err, kind, records)
				}
			}
			expect("nobody else is let in", send("b"), batch.KindFatal)
			if n := len(g.asked); n != 1 || g.asked[0] != "" {
				t.Errorf("asked %q", g.asked)
			}
			// Another tenant is known as soon as a record of it is encoded.
			e := &encoded{t: t, s: s}
			e.add(nil, event(time.Now(), 0, "x", slog.String("t", "a")))
			g.empty, g.asked = 0, nil
			expect("no answer", send("b"), batch.KindFatal)
			if n := len(g.asked); n > 2 || g.asked[n-1] != "a" { // the other is refused
				t.Errorf("asked %q", g.asked)
			}
			g.empty = 503
			expect("Loki is down", send("b"), batch.KindFatal)
			g.empty = 200
			expect("a page to log in", send("b"), batch.KindFatal)
			g.empty = 422
			expect("a comes through", send("b"), batch.KindReject, 0)
			expect("beside another", send("a", "b", "a"), batch.KindReject, 1)
			expect("a", send("a"), 99)
			g.asked = nil
			expect("in one batch with another", send("b", "a"), batch.KindReject, 0)
			if len(g.asked) != 1 || g.asked[0] != "a" { // a was let in last
				t.Errorf("asked %q", g.asked)
			}
			g.asked = nil
			expect("neither tenant nor header", send(""), batch.KindReject, 0)

			g.denied["*"] = 403
			expect("the credentials", send("b"), batch.KindFatal)
			expect("of all", send("a"), batch.KindFatal)
			delete(g.denied, "*")
			expect("again", send("a"), 99)

			// A tenant that was taken before is held first.
			g.denied["a"] = 403
			delete(g.denied, "b")
			expect("a is held", send("a"), batch.KindFatal)
			time.Sleep(deniedFor - time.Second)
			expect("a is held, b is not", send("b", "a"), batch.KindPartial, 1)
			time.Sleep(time.Second)
			expect("a is refused", send("b", "a"), batch.KindReject, 1)
			delete(g.denied, "a")
			expect("a is back", send("b", "a"), 99)
			g.denied["a"] = 401
			expect("and held again", send("a"), batch.KindFatal)
			g.denied["a"] = 400
			expect("a is back, this record is refused", send("a"), batch.KindReject, 0)
			time.Sleep(2 * deniedFor)
			g.denied["a"] = 401
			expect("and held once more", send("a"), batch.KindFatal)

			// What was refused for the credentials counts for nothing.
			g.denied["*"] = 401
			time.Sleep(2 * deniedFor)
			expect("all are held", send("a"), batch.KindFatal)
			delete(g.denied, "*")
			expect("a still is", send("a"), batch.KindFatal)
			time.Sleep(deniedFor)
			expect("but not for ever", send("a"), batch.KindReject, 0)
			if n := s.Stats().ByReason[BadTenant]; n != 6 {
				t.Errorf("%s: counted %d", wire, n)
			}
		})
	}
}

// TestForbiddenTenantFirst: the records of a forbidden tenant come first, more than a
// batch, and hold up none of the others'.
func TestForbiddenTenantFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{denied: map[string]int{"bad": 403, "": 401}, empty: 422, lines: map[string][]string{}}
		h := handlerFor(t, g, Config{TenantAttr: "t", BatchRecords: 10, BatchAge: time.Minute})
		log := slog.New(h)
		for i := range 30 {
			log.Info(fmt.Sprint("bad ", i), "t", "bad")
		}
		synctest.Wait() // they are held: nobody else is known
		if n := len(g.lines); n != 0 {
			t.Fatal(g.lines)
		}
		for i := range 30 {
			log.Info(fmt.Sprint("good ", i), "t", []string{"x", "y"}[i%2])
		}
		time.Sleep(10 * time.Minute)
		g.mu.Lock()
		for i, tenant := range []string{"x", "y"} {
			if got := g.lines[tenant]; len(got) != 15 || got[14] != fmt.Sprintf(`{"Message":"good %d"}`, 28+i) {
				t.Errorf("%s: got %q", tenant, got)
			}
		}
		g.mu.Unlock()
		rep, _ := h.Close(context.Background())
		if rep.Delivered != 30 || rep.Dropped[batch.Poison] != 30 || rep.Check() != nil {
			t.Errorf("%v", rep)
		}
	})
}

// TestHeldTenantHoldsOthers is what the documentation of Config.TenantAttr says: what
// was logged after the records of a tenant that is held waits behind them, but no
// longer than deniedFor, and none of it is lost.
func TestHeldTenantHoldsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{denied: map[string]int{}, empty: 422, lines: map[string][]string{}}
		h := handlerFor(t, g, Config{TenantAttr: "t", BatchRecords: 10, BatchAge: time.Second})
		log := slog.New(h)
		log.Info("x", "t", "a")
		log.Info("x", "t", "b")
		time.Sleep(time.Minute)
		count := func() (a, b int) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.lines["a"]), len(g.lines["b"])
		}
		deny := func(status int) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if delete(g.denied, "a"); status != 0 {
				g.denied["a"] = status
			}
		}
		deny(403)
		log.Info("held", "t", "a")
		time.Sleep(time.Minute)
		log.Info("waits", "t", "b")
		time.Sleep(time.Minute)
		if a, b := count(); a != 1 || b != 1 {
			t.Errorf("while it is held: %d, %d", a, b)
		}
		deny(0)
		time.Sleep(5 * time.Minute)
		if a, b := count(); a != 2 || b != 2 {
			t.Errorf("after that: %d, %d", a, b)
		}
		deny(403)
		log.Info("refused", "t", "a")
		time.Sleep(time.Minute)
		log.Info("goes on", "t", "b")
		time.Sleep(2 * deniedFor)
		if a, b := count(); a != 2 || b != 3 {
			t.Errorf("at last: %d, %d", a, b)
		}
		rep, _ := h.Close(context.Background())
		if rep.Delivered != 5 || rep.Dropped[batch.Poison] != 1 || rep.Check() != nil {
			t.Errorf("%v", rep)
		}
	})
}

// TestTenantLetInMeanwhile: a tenant that was let in while it is looked at what became
// of others was not denied for long.
func TestTenantLetInMeanwhile(t *testing.T) {
	s := sinkFor(t, stored204{}, Config{TenantAttr: "t"})
	st := s.streams.add(append(appendStreamDef(nil, []byte("a")), "{}"...), true)
	other := s.streams.add(append(appendStreamDef(nil, []byte("b")), "{}"...), true)
	sent := time.Now()
	other.tenantPace.passed.Store(sent.Add(time.Hour).UnixNano())
	st.tenantPace.passed.Store(sent.UnixNano())
	var wg sync.WaitGroup
	defer wg.Wait()
	quit := make(chan struct{})
	defer close(quit)
	wg.Go(func() {
		for {
			select {
			case <-quit:
				return
			default:
				st.tenantPace.denied.Store(0) // as post does
			}
		}
	})
	for range 50_000 {
		if s.onlyTenant(context.Background(), st, sent) {
			t.Fatal("its records are refused")
		}
	}
}

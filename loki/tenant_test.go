package loki

import (
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
)

// A gateway accepts or refuses tenants, like a reverse proxy in front of Loki.
type gateway struct {
	mu     sync.Mutex
	denied map[string]int // status by tenant; "*": all others
	lines  map[string]int // number of stored lines by tenant
	n      int            // number of pushes
}

func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	tenant := r.Header.Get("X-Scope-Orgid")
	p := new(peer)
	if _, err := p.RoundTrip(r); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
	status, ok := g.denied[tenant]
	if !ok {
		status, ok = g.denied["*"]
	}
	if !ok {
		status = 204
		g.lines[tenant] += len(p.lines())
	}
	r.Body = nil
	return answerOf(r, status, nil)
}

// If one tenant is refused while another may be accepted, only the records of the refused tenant
// are kept back. If no other tenant may be accepted, all records are kept back, because the
// credentials may be wrong.
func TestDeniedTenantIsHeldWhileOthersAreAccepted(t *testing.T) {
	for _, status := range []int{401, 403, 260} {
		bubble.Test(t, func(t *testing.T) {
			g := &gateway{denied: map[string]int{"b": status}, lines: map[string]int{}}
			s := sinkFor(t, g, Config{TenantAttr: "t", Concurrency: 1})
			add := func(tenants ...string) *encoded {
				e := &encoded{t: t, s: s}
				for _, tenant := range tenants {
					e.add(nil, event(time.Now(), 0, "x", slog.String("t", tenant)))
				}
				return e
			}
			expect := func(what string, e *encoded, want string) {
				t.Helper()
				time.Sleep(time.Millisecond)
				if got := e.send(); !got.is(want) {
					t.Errorf("%d: %s: got %v, want %v", status, what, got, want)
				}
			}
			expect("no other tenant has records", add("b"), "hold [0]")
			ofOther := add("a") // a batch of another tenant, not yet sent
			expect("another tenant has records", add("b"), "hold streams [0]")
			expect("the other tenant", ofOther, "stored")
			expect("together with other tenants", add("a", "b", "", "b"), "hold streams [1 3]")
			if g.lines["a"] != 2 || g.lines[""] != 1 || g.n != 6 {
				t.Errorf("stored %v by %d pushes", g.lines, g.n)
			}

			g.denied["*"] = status
			expect("all", add("b", "a", ""), "hold [0 1 2]")
			expect("all, one after the other", add("a"), "hold [0]")
			delete(g.denied, "*")
			expect("b, still denied", add("b"), "hold [0]") // the last responses to the other tenants were denials
			// A refusal counts only for denialPeriod. Otherwise the records of the other tenants
			// could wait forever behind the records of tenant b.
			time.Sleep(denialPeriod)
			expect("b, later", add("b"), "hold streams [0]")
			expect("the others", add("a", ""), "stored")
			g.denied["*"] = status
			expect("all again", add("b", "a", ""), "hold [0 1 2]")
			delete(g.denied, "*")
			expect("a is back", add("a"), "stored")
			expect("b is not", add("b"), "hold streams [0]")
			delete(g.denied, "b")
			expect("b is back", add("b"), "stored")
			g.denied["a"] = 400
			expect("a is let in, and its record refused", add("a"), "doubt [0]")
		})
	}
}

// Without TenantAttr all records belong to one tenant. If it is refused, all records are kept back.
func TestDenialWithoutTenantAttrHoldsAll(t *testing.T) {
	g := &gateway{denied: map[string]int{"one": 403}, lines: map[string]int{}}
	e := &encoded{t: t, s: sinkFor(t, g, Config{Tenant: "one"})}
	if got := e.add(nil, event(time.Now(), 0, "x")).send(); !got.is("hold [0]") {
		t.Errorf("got %v", got)
	}
	// Another tenant may have records in a spool.
	e.s.streams.Stream(append(appendStreamDef(nil, []byte("other")), `{a="b"}`...))
	if got := e.send(); !got.is("hold streams [0]") {
		t.Errorf("got %v", got)
	}
}

// Records of a refused tenant do not delay other tenants, even if more of them were logged first
// than fit into a batch. They are delivered when the tenant is accepted.
func TestDeniedTenantDelaysNoOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := &gateway{denied: map[string]int{"bad": 403, "": 401}, lines: map[string]int{}}
		h := handlerFor(t, g, Config{TenantAttr: "t", BatchRecords: 10, BatchAge: time.Minute})
		log := slog.New(h)
		for range 30 {
			log.Info("x", "t", "bad")
		}
		synctest.Wait() // the denied tenant is the only one so far
		for i := range 30 {
			log.Info("x", "t", []string{"x", "y"}[i%2])
		}
		time.Sleep(10 * time.Minute)
		stored := func() (bad, others int) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.lines["bad"], g.lines["x"] + g.lines["y"]
		}
		if bad, others := stored(); bad != 0 || others != 30 {
			t.Errorf("while the tenant is denied: stored %d and %d", bad, others)
		}
		g.mu.Lock()
		delete(g.denied, "bad")
		g.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if bad, others := stored(); bad != 30 || others != 30 {
			t.Errorf("after the tenant was accepted: stored %d and %d", bad, others)
		}
		if rep, err := h.Close(t.Context()); err != nil || rep.Delivered != 60 || rep.Check() != nil {
			t.Errorf("%v %v", rep, err)
		}
	})
}

// If Loki has no room for a new stream, the records of existing streams do not wait.
func TestStreamWithoutRoomDelaysNoOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		full, lines := true, map[string]int{}
		p := &peer{answer: ingester(func(_ int, r *request) (int, string, http.Header) {
			mu.Lock()
			defer mu.Unlock()
			if l := r.streams[0].Labels; full && !strings.Contains(l, `region="a"`) {
				return 429, "Maximum active stream limit exceeded when trying to create stream " + l + ", reduce the number of active streams", nil
			}
			for _, e := range r.streams[0].Entries {
				lines[e.Line]++
			}
			return 204, "", nil
		})}
		h := handlerFor(t, p, Config{LabelAttrs: []string{"region"}, Labels: map[string]string{"app": "test"}})
		log := slog.New(h)
		log.Info("of a", "region", "a")
		time.Sleep(10 * time.Second)
		log.Info("too many", "region", "b")
		for i := range 100 {
			if i == 50 {
				time.Sleep(10 * time.Second)
			}
			log.Info("of a", "region", "a", "i", i)
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		if len(lines) != 101 {
			t.Errorf("%d lines arrived", len(lines))
		}
		full = false
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		if rep, err := h.Close(t.Context()); err != nil || rep.Delivered != 102 || len(lines) != 102 {
			t.Errorf("%v %v, %d lines arrived", rep, err, len(lines))
		}
	})
}

package loki

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
)

// The constant unknown is a text that a later version of Loki, or a server in front of Loki, may
// send.
const unknown = "the request did not pass"

// A server that responds to every request with 400 or 422 and an unknown text may be faulty, so no
// record becomes a dead letter. When the server works again, all records arrive in order.
func TestUnknownRefusalLosesNothing(t *testing.T) {
	for _, tt := range []struct {
		status int
		most   int // number of refused pushes out of ten
	}{{400, 10}, {422, 10}, {400, 9}, {400, 5}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var works atomic.Bool
				var n atomic.Int64
				p := &peer{}
				p.answer = func(_ int, r *request) (int, string, http.Header) {
					if !works.Load() && int(n.Add(7)*7919%10) < tt.most {
						return tt.status, unknown, nil
					}
					return 204, "", nil
				}
				h := handlerFor(t, p, Config{})
				log := slog.New(h)
				const lines = 300
				for i := range lines {
					log.Log(t.Context(), slog.Level(i%2*4), fmt.Sprint(i))
					time.Sleep(2 * time.Second)
				}
				if a := h.Sink.Account(); a.Dropped.Total() > 0 {
					t.Errorf("records were lost within ten minutes: %v", a)
				}
				works.Store(true)
				time.Sleep(10 * time.Minute)
				if a := h.Sink.Account(); a.Delivered != lines {
					t.Errorf("after the server works again: %v", a)
				}
				if _, err := h.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// If a server refuses one record with an unknown text, fails on it, or has a firewall that rejects
// it, and accepts other records of the same stream, only this record is refused.
func TestOneRefusedRecordIsFound(t *testing.T) {
	for _, tt := range []struct {
		status int
		text   string
		within time.Duration
	}{
		{400, unknown, 5 * time.Minute},
		{403, "<html>Request blocked</html>", 5 * time.Minute},
		{500, "oops", 2 * time.Hour},
		{502, "", 2 * time.Hour},
	} {
		t.Run(fmt.Sprint(tt.status), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := &peer{}
				p.answer = func(_ int, r *request) (int, string, http.Header) {
					for _, s := range r.streams {
						for _, e := range s.Entries {
							if strings.Contains(e.Line, "poison") {
								return tt.status, tt.text, nil
							}
						}
					}
					return 204, "", nil
				}
				h := handlerFor(t, p, Config{})
				log := slog.New(h)
				for i := range 200 {
					log.Log(t.Context(), slog.Level(i%2*4), fmt.Sprint(i))
					if i == 100 {
						log.Info("poison")
					}
					time.Sleep(50 * time.Millisecond)
				}
				time.Sleep(10 * time.Second)
				if a := h.Sink.Account(); a.Delivered != 200 {
					t.Errorf("the other records are not delivered: %v", a)
				}
				time.Sleep(tt.within)
				if a := h.Sink.Account(); a.Delivered != 200 || a.Dropped[batch.Poison] != 1 {
					t.Error(a)
				}
				_, _ = h.Close(t.Context())
			})
		})
	}
}

// If a server refuses a record with an unknown text, this record is found, even while the records
// of a refused tenant are kept.
func TestUnknownRefusalIsSearchedBesideDeniedTenant(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := &peer{}
		p.answer = func(_ int, r *request) (int, string, http.Header) {
			switch text := fmt.Sprint(r.streams); {
			case strings.Contains(text, "poison"):
				return 400, unknown, nil
			case strings.Contains(text, "denied"):
				return 403, "not you", nil
			}
			return 204, "", nil
		}
		h := handlerFor(t, p, Config{TenantAttr: "tenant"})
		log := slog.New(h)
		for i := range 100 {
			log.Info("denied", "tenant", "b")
			log.Info(fmt.Sprint(i), "tenant", "a")
			if i == 50 {
				log.Info("poison", "tenant", "a")
			}
		}
		time.Sleep(10 * time.Minute)
		if a := h.Sink.Account(); a.Delivered != 100 || a.Dropped[batch.Poison] != 1 || a.Pending.Total() != 100 {
			t.Error(a)
		}
		_, _ = h.Close(t.Context())
	})
}

package loki

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
)

// mute stores what it is sent, and never answers.
type mute struct{}

func (mute) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// unconnected refuses connections.
type unconnected struct{}

func (unconnected) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body.Close()
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

// What a Loki has been sent and has not answered in time is unknown when it is lost; what it
// was never sent is not.
func TestUnansweredPushesAreUnknown(t *testing.T) {
	for name, p := range map[string]http.RoundTripper{"mute": mute{}, "unconnected": unconnected{}} {
		bubble.Test(t, func(t *testing.T) {
			h := handlerFor(t, p, Config{Timeout: 500 * time.Millisecond})
			log := slog.New(h)
			for range 100 {
				log.Info("m")
			}
			time.Sleep(time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := h.Close(ctx)
			want := uint64(100)
			if name == "unconnected" {
				want = 0
			}
			if err == nil || r.Dropped[batch.Shutdown] != 100 || r.Unknown != want {
				t.Errorf("%s: %s, %d unknown: %v", name, r.Account, r.Unknown, err)
			}
		})
	}
}

// A 400 of another server than Loki says nothing of the records: they wait.
func TestForeignBadRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		contentType, body string
		held              bool
	}{
		"empty": {"", "", true},
		"nginx": {"text/html", "<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>", true},
		"page":  {"text/html; charset=utf-8", "Bad Request", true},
		"Loki":  {"text/plain; charset=utf-8", "loghttp.PushRequest.Streams: unmarshalerDecoder: no", false},
	} {
		bubble.Test(t, func(t *testing.T) {
			var well atomic.Bool
			p := &peer{answer: func(int, *request) (int, string, http.Header) {
				if well.Load() {
					return 204, "", nil
				}
				return 400, tt.body, http.Header{"Content-Type": {tt.contentType}}
			}}
			h := handlerFor(t, p, Config{})
			for range 10 {
				slog.New(h).Info("x")
			}
			time.Sleep(time.Minute)
			if a := h.Sink.Account(); (a.Dropped[batch.Poison] == 0) != tt.held {
				t.Errorf("%s: %v", name, a)
			}
			well.Store(true)
			time.Sleep(10 * time.Minute)
			if a := h.Sink.Account(); tt.held && a.Delivered != 10 {
				t.Errorf("%s: %v", name, a)
			}
			if _, err := h.Close(t.Context()); err != nil && tt.held {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

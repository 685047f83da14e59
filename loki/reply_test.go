package loki

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
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
		synctest.Test(t, func(t *testing.T) {
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

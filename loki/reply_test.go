package loki

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
)

// A silentServer is a transport to a server that stores requests and never responds.
type silentServer struct{}

func (silentServer) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// An unreachableServer is a transport that cannot connect.
type unreachableServer struct{}

func (unreachableServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body.Close()
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

// When the output is closed, records that were sent without a response are reported as unknown.
// Records that were never sent are not.
func TestUnansweredPushesAreUnknown(t *testing.T) {
	for name, p := range map[string]http.RoundTripper{"silentServer": silentServer{}, "unreachableServer": unreachableServer{}} {
		bubble.Test(t, func(t *testing.T) {
			h := handlerFor(t, p, Config{HTTP: httpclient.Options{Timeout: 500 * time.Millisecond}})
			log := slog.New(h)
			for range 100 {
				log.Info("m")
			}
			time.Sleep(time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := h.Close(ctx)
			want := uint64(100)
			if name == "unreachableServer" {
				want = 0
			}
			if err == nil || r.Dropped[batch.Shutdown] != 100 || r.Unknown != want {
				t.Errorf("%s: %s, %d unknown: %v", name, r.Account, r.Unknown, err)
			}
		})
	}
}

// If a port does not speak HTTP, the error says so.
func TestPortWithoutHTTPIsExplained(t *testing.T) {
	for answer, want := range map[string]string{
		"SSH-2.0-OpenSSH_9.6\r\n":  `HOST does not speak HTTP: malformed response "SSH-2.0-OpenSSH_9.6"`,
		"-ERR unknown command\r\n": `HOST does not speak HTTP: malformed status code "unknown"`,
		"":                         "HOST closed the connection without an HTTP answer; it may not speak HTTP: ",
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				_, _ = io.WriteString(c, answer)
				c.Close()
			}
		}()
		e := &encoded{t: t, s: sinkFor(t, nil, Config{URL: "http://" + ln.Addr().String(), HTTP: httpclient.Options{NoProxy: true}})}
		got := e.add(nil, event(time.Now(), 0, "x")).send()
		if want = strings.Replace(want, "HOST", ln.Addr().String(), 1); !got.is("again [0]") || !strings.Contains(got.String(), want) {
			t.Errorf("got %v, want %s", got, want)
		}
		ln.Close()
		<-done
	}
}

// If a response with status 400 does not come from Loki, no records are refused. They are kept.
func TestBadRequestOfProxyHoldsRecords(t *testing.T) {
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

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/forebaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret = "hunter2"

	// timeout limits how long a test waits for an event. Only a failing test waits that long.
	timeout = time.Minute
)

func TestZapRecordsReachAllOutputs(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	defer zap.ReplaceGlobals(zap.L())()
	rec := forebaytest.New(t)
	file := filepath.Join(t.TempDir(), "mailer.log")
	var console bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, "127.0.0.1:0", file, forebay.Console(&console), forebay.Writer(rec))
	}()
	addr := rec.Wait(timeout, slog.LevelInfo, "listening").Attrs["addr"].(string)
	post := func(form url.Values) int {
		resp, err := http.PostForm("http://"+addr, form)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}

	if status := post(nil); status != http.StatusBadRequest {
		t.Errorf("status %d", status)
	}
	rec.Want(slog.LevelWarn, "refused", "logger", "mailer", "http.method", "POST", "http.error", "no recipient")

	const mails = 100
	for i := range mails {
		if status := post(url.Values{"to": {fmt.Sprintf("user-%d@x", i)}, "password": {secret}}); status != http.StatusAccepted {
			t.Errorf("status %d", status)
		}
	}
	rec.Want(slog.LevelInfo, "accepted", "http.mail.to", "user-7@x", "http.mail.password", "[redacted]", "logger", "mailer")
	rec.Wait(timeout, slog.LevelInfo, "sent", "to", "user-7@x", "took", 20*time.Millisecond, "logger", "mailer.worker")

	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	rec.None(slog.LevelError)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"console": console.String(), "file": string(text)} {
		for i := range mails { // there is one record when a mail is accepted, and one when it is sent
			if to := fmt.Sprintf("user-%d@x", i); strings.Count(text, to) != 2 {
				t.Errorf("%s: %s is there %d times", name, to, strings.Count(text, to))
			}
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s: the password is there:\n%s", name, text)
		}
	}
}

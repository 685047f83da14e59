package program

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
)

// spool cat prints the tags of records that a fluent.Logger has stored. The spool contains the
// names of tags, so the numbers of tags in this process are irrelevant.
func TestSpoolCatKnowsTags(t *testing.T) {
	dir := t.TempDir()
	l, err := fluent.NewLogger(fluent.Config{
		Servers:      []string{"127.0.0.1:1"},
		ReconnectMin: time.Millisecond,
	}, forebay.Spool(filepath.Join(dir, "spool")), forebay.OnError(func(batch.Event) {}), forebay.Delivery(func(o *deliver.OutputOptions) {
		o.Deliver.Breaker = &deliver.BreakerOptions{Failures: 1}
	}))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l.PostWithTime("cat.b", at, map[string]any{"n": 1})
	l.PostWithTime("cat.a", at, map[string]any{"n": 2})
	l.PostWithTime("cat.b", at, map[string]any{"n": 3})
	for end := time.Now().Add(time.Minute); l.Stats().Pending.Spill < 3 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if rep, _ := l.Close(ctx); rep.Pending.Spill != 3 {
		t.Fatalf("%s", rep.Account)
	}
	other, err := fluent.New(fluent.Config{})
	if err != nil {
		t.Fatal(err)
	}
	other.Traits().Dictionary.Stream([]byte("cat.between"))
	var out bytes.Buffer
	cmd := newRoot(os.Stdin, os.Stdout, os.Stderr)
	cmd.SetArgs([]string{"spool", "cat", filepath.Join(dir, "spool")})
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	want := []string{`{"tag":"cat.b","time":"2026-01-02T03:04:05Z","record":{"n":1}}`,
		`{"tag":"cat.a","time":"2026-01-02T03:04:05Z","record":{"n":2}}`, `{"tag":"cat.b","time":"2026-01-02T03:04:05Z","record":{"n":3}}`}
	if got := strings.Split(strings.TrimSpace(out.String()), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", out.String())
	}
}

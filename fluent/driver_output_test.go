package fluent

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
)

// Closing a Router delivers the records of its Forward output and unlocks the spool.
func TestRouterClosesDriverAndSpool(t *testing.T) {
	var r received
	dir := t.TempDir()
	c := testConfig{Config: Config{Servers: []string{listenAndAck(t, &r)}, Tag: "out.put"}, Name: "out", SpoolDir: dir, OnError: func(batch.Event) {}}
	d, err := c.driver()
	if err != nil {
		t.Fatal(err)
	}
	router, err := forebay.NewRouter(forebay.To(d, c.options()...))
	if err != nil {
		t.Fatal(err)
	}
	slog.New(router).Info("one", "n", 1)
	slog.New(router).Debug("two")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rep, err := router.Close(ctx)
	if err != nil || len(rep.Outputs) != 1 || rep.Outputs[0].Name != "out" || rep.Outputs[0].Report.Delivered != 1 {
		t.Errorf("%v: %+v", err, rep)
	}
	frames := r.messages()
	if len(frames) != 1 || frames[0].Tag != "out.put" || len(frames[0].Entries) != 1 {
		t.Errorf("%+v", frames)
	}
	again, err := c.logger() // a second Logger can lock the spool
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Close(ctx); err != nil {
		t.Error(err)
	}
	if st := again.Stats(); st.Check() != nil || st.Accepted != 0 {
		t.Errorf("%+v", st)
	}

	// An output can also be opened without a Router. It then accepts encoded events.
	s, err := forebay.Open(To(c.Servers[0], "forebay"))
	if err != nil {
		t.Fatal(err)
	}
	event, _ := AppendEvent(nil, time.Unix(1, 0), map[string]any{"n": 7})
	if _, err := s.Write(event); err != nil {
		t.Error(err)
	}
	if err := s.Flush(ctx); err != nil || !slices.Equal(r.get("forebay"), []int{7}) {
		t.Errorf("%v: %v", err, r.get("forebay"))
	}
	if rep, err := s.Shutdown(ctx); err != nil || rep.Delivered != 1 {
		t.Errorf("%v: %s", err, rep.Account)
	}
}

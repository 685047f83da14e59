package slablog

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// mappings returns how many mappings of files in dir this process has.
func mappings(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), dir)
}

// Close unmaps the file, both if all records were delivered and if some were kept.
func TestCloseUnmaps(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		w := crashWriter(t, dir, new(memory), slab.Options{})
		mustWrite(t, w, i, 100)
		if mappings(t, dir) != 1 {
			t.Fatal("the test does not see mappings")
		}
		closeNow(t, w)
		if n := mappings(t, dir); n != 0 {
			t.Errorf("%d mappings after Close", n)
		}
		if _, err := w.Write(line(0, 100)); !errors.Is(err, batch.ErrClosed) {
			t.Error(err)
		}
		_ = w.Stats()

		w = crashWriter(t, dir, &memory{act: func(int, []byte) (int, error) { return 0, errDown }}, slab.Options{CloseTimeout: time.Millisecond})
		mustWrite(t, w, i, 100)
		mustWrite(t, w, i, 100000)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		<-w.done // closed when the consumer has ended, after Close ran out of time
		if n := mappings(t, dir); n != 0 {
			t.Errorf("%d mappings after a Close that kept records", n)
		}
		if a := w.Account(); a.Pending.Total() == 0 || a.Check() != nil {
			t.Error(a)
		}
	}
	got, _ := recoverInto(t, dir)
	if len(numbers(t, got)) != 2 {
		t.Errorf("recovered %.100q", got)
	}
}

// While the consumer hangs in a destination, the file stays mapped, and the destination reads a
// copy. The file is unmapped when the consumer ends.
func TestHangingConsumerKeepsTheMapping(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		opened, read := make(chan struct{}), ""
		w := crashWriter(t, dir, writerFunc(func(p []byte) (int, error) {
			<-opened
			read = string(p)
			return len(p), nil
		}), slab.Options{})
		mustWrite(t, w, 0, 100)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r, err := w.Shutdown(ctx); err != nil || r.Kept() != 1 {
			t.Errorf("%v: %v", err, r)
		}
		if n := mappings(t, dir); n != 1 {
			t.Errorf("%d mappings while Send hangs", n)
		}
		close(opened)
		synctest.Wait()
		if read != string(line(0, 100)) {
			t.Errorf("read %q", read)
		}
		if n := mappings(t, dir); n != 0 {
			t.Errorf("%d mappings after Send has returned", n)
		}
	})
}

//go:build linux || darwin

package slab

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
)

// A destination that takes nothing, and whose own end hangs: what stays in the file
// is counted once, that of the last Send too.
func TestKeptCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hangingEnd{end: make(chan struct{})}
		w := mustSink(t, s, &Options{SlabBytes: 512, SlabCount: 4, Crash: &Crash{Dir: t.TempDir(), Required: true}, OnError: quiet})
		for i := range uint64(20) {
			if err := w.WriteRecord(killLine(0, i, 20), batch.Meta{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := w.Shutdown(ctx)
		if err != nil || r.Check() != nil || r.Kept() != 20 {
			t.Errorf("%v; %v: %v", err, r.Check(), r.Account)
		}
		close(s.end)
		synctest.Wait()
		if im, err := crashfile.Read(w.crash.path); err != nil || len(im.Records) != 20 {
			t.Errorf("%v: %v", err, im)
		}
	})
}

type hangingEnd struct{ end chan struct{} }

func (s *hangingEnd) Send(context.Context, *batch.Batch) batch.Outcome { return failed() }

func (s *hangingEnd) Close(context.Context) error {
	<-s.end
	return nil
}

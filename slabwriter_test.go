package forebay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// The error of NewSlabWriter names each invalid option and the remedy.
func TestSlabWriterOptions(t *testing.T) {
	for _, test := range []struct {
		w    io.Writer
		o    *slab.Options
		want []string
	}{
		{nil, nil, []string{"the writer is nil"}},
		{(*bytes.Buffer)(nil), nil, []string{"the writer is nil"}},
		{io.Discard, &slab.Options{SlabBytes: 1, SlabCount: 1}, []string{"SlabBytes", "SlabCount"}},
		{io.Discard, &slab.Options{WhenFull: slab.Spill()}, []string{"no spool", "Writer"}},
	} {
		sw, err := forebay.NewSlabWriter(test.w, test.o)
		if err == nil {
			t.Errorf("%v: no error", test.want)
			sw.Close()
			continue
		}
		for _, want := range append(test.want, "forebay: cannot make slab writer: ") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
	}
}

// A record larger than MaxRecord is refused and counted. WriteRecord returns an error for a dropped
// record.
func TestSlabWriterReportsDrops(t *testing.T) {
	var out, errs bytes.Buffer
	sw, err := forebay.NewSlabWriter(&out, &slab.Options{MaxRecord: 64, OnError: slab.ErrorsTo(&errs)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sw.Write(make([]byte, 65)); !errors.Is(err, slab.ErrOversize) {
		t.Error(err)
	}
	if err := sw.WriteRecord(make([]byte, 65), batch.Meta{}); !errors.Is(err, slab.ErrDropped) {
		t.Error(err)
	}
	if err := errors.Join(sw.WriteRecord([]byte("line\n"), batch.Meta{}), sw.Sync(), sw.Close()); err != nil {
		t.Error(err)
	}
	a := sw.Stats().Account
	if out.String() != "line\n" || a.Accepted != 3 || a.Delivered != 1 || a.Dropped[batch.Oversize] != 2 {
		t.Error(out.String(), a)
	}
}

// The errors of a SlabWriter whose writer hangs have the number of records and a remedy. An error
// after Close has each word once.
func TestSlabWriterErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := &fakeDest{state: "hangs", release: make(chan struct{})}
		sw, err := forebay.NewSlabWriter(funcWriter(w.attempt), nil)
		if err != nil {
			t.Fatal(err)
		}
		sw.Write([]byte("line\n"))
		const late = "deliver: cannot flush: not finished in time: 1 record not delivered yet"
		if err := sw.Sync(); err == nil || err.Error() != late || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Sync: %v, want %s", err, late)
		}
		if err := sw.Close(); err == nil || !strings.Contains(err.Error(), "CloseTimeout") {
			t.Errorf("Close: %v", err)
		}
		if _, err := sw.Write([]byte("line\n")); err == nil || err.Error() != "slab: the writer is closed" || !errors.Is(err, batch.ErrClosed) {
			t.Errorf("Write after Close: %v", err)
		}
		close(w.release)
		time.Sleep(time.Minute)
	})
}

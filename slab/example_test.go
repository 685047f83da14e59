package slab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

// newWriter returns an Output with slabs in front of a destination.
func newWriter(dest deliver.Destination, o slab.Options) (*deliver.Output, error) {
	return deliver.NewOutput(dest, &deliver.OutputOptions{Slab: o, CloseTimeout: o.CloseTimeout, OnError: func(batch.Event) {}})
}

// The options of the memory are part of the options of an Output.
func ExampleOptions() {
	out, err := deliver.NewOutput(deliver.ToWriter(os.Stdout), &deliver.OutputOptions{
		Slab: slab.Options{SlabBytes: 32 << 10, SlabCount: 4, FlushInterval: 50 * time.Millisecond},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(out, "one")
	fmt.Println(out.Close())
	// Output:
	// one
	// <nil>
}

// A destination receives whole batches.
func ExampleOptions_flush() {
	dest := deliver.SendFunc(deliver.Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
		fmt.Printf("%d records, %d bytes, tickets %d to %d\n", b.Len(), b.Bytes(), b.First(), b.Last())
		return batch.Outcome{}
	})
	w, err := newWriter(dest, slab.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range []string{"a\n", "bc\n", "def\n"} {
		if err := w.WriteRecord([]byte(s), batch.Meta{Level: slog.LevelWarn}); err != nil {
			fmt.Println(err)
		}
	}
	if err := w.Flush(context.Background()); err != nil {
		fmt.Println(err)
	}
	_ = w.Close()
	// Output: 3 records, 9 bytes, tickets 1 to 3
}

// WhenFull is the policy for a destination that hangs while all slabs are full. Records that it
// drops are counted.
func ExampleDropNewest() {
	hang := make(chan struct{})
	dest := deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
		<-hang
		return batch.Outcome{}
	})
	w, err := newWriter(dest, slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest()})
	if err != nil {
		fmt.Println(err)
		return
	}
	record := bytes.Repeat([]byte("x"), 100)
	refused := 0
	for range 100 {
		if err := w.WriteRecord(record, batch.Meta{}); errors.Is(err, slab.ErrDropped) {
			refused++
		}
	}
	fmt.Println("dropped:", w.Account().Dropped[batch.Full] == uint64(refused), w.Account().Check())
	close(hang)
	_ = w.Close()
	fmt.Println("delivered:", w.Account().Delivered+uint64(refused))
	// Output:
	// dropped: true <nil>
	// delivered: 100
}

// Policies can be converted to and from text, for flags and configuration files.
func ExampleParseWhenFull() {
	for _, s := range []string{"block", "block-for=50ms", "drop-newest", "drop-oldest", "wait"} {
		p, err := slab.ParseWhenFull(s)
		if err != nil {
			fmt.Println("error")
			continue
		}
		fmt.Println(p)
	}
	// Output:
	// block
	// block-for=50ms
	// drop-newest
	// drop-oldest
	// error
}

// Shutdown returns when its context ends, and its report contains the number of records that did
// not arrive.
func ExampleOptions_shutdown() {
	dest := deliver.SendFunc(deliver.Traits{}, func(ctx context.Context, _ *batch.Batch) batch.Outcome {
		<-ctx.Done()
		return batch.Outcome{Open: batch.All(), Why: ctx.Err()}
	})
	w, err := newWriter(dest, slab.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(w, "never seen")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	r, err := w.Shutdown(ctx)
	fmt.Println(r.Account, err != nil)
	// Output: accepted=1 delivered=0 dropped=1{shutdown=1} true
}

// Slabs in mapped files survive the process. The next process that opens the directory delivers the
// remaining records first.
func ExampleCrashSafe() {
	dir, err := os.MkdirTemp("", "slabs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	out, err := deliver.NewOutput(deliver.ToWriter(os.Stdout), &deliver.OutputOptions{Slab: slab.Options{Crash: &slab.Crash{Dir: dir}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(out, "kept from here on")
	_ = out.Close()
	// Output: kept from here on
}

// If memory is full, the oldest debug records are dropped, and error records wait for room.
func ExampleDropOldest() {
	w, err := forebay.NewSlabWriter(os.Stdout, &slab.Options{
		WhenFull:          slab.DropOldest(),
		ImportantWhenFull: slab.BlockFor(time.Second),
		ImportantLevel:    slog.LevelError,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.WriteRecord([]byte("one line\n"), batch.Meta{Level: slog.LevelError})
	w.Close()
	// Output: one line
}

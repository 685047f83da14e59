package forebay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

// The standard log package writes to a SlabWriter.
func ExampleNewSlabWriter() {
	sw, err := forebay.NewSlabWriter(os.Stdout, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sw.Close()
	logger := log.New(sw, "app: ", 0)
	logger.Print("hello")
	// Output: app: hello
}

// Options set the size and the number of slabs and the flush interval.
func ExampleNewSlabWriter_options() {
	conn := os.Stdout
	sw, err := forebay.NewSlabWriter(conn, &slab.Options{SlabBytes: 64 << 10, SlabCount: 8, FlushIdle: 100 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sw.Close()
	fmt.Fprintln(sw, "one line")
	if err := sw.Flush(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(sw.Stats().Account)
	// Output:
	// one line
	// accepted=1 delivered=1
}

// This is the code in the right column of the table in docs/MIGRATING-logf.md.
func Example_migratingFromLogf() {
	file, conn, enc := os.Stdout, io.Discard, noTime

	direct, err := forebay.NewRouter(
		forebay.Route(enc, forebay.Writer(file, forebay.Direct(), forebay.BusyTimeout(forebay.Forever), forebay.Level(slog.LevelDebug))))
	check(err)

	sw, err := forebay.NewSlabWriter(conn, &slab.Options{
		SlabBytes: 64 << 10,
		SlabCount: 8,
		FlushIdle: 100 * time.Millisecond,
		WhenFull:  slab.Block(),
	})
	check(err)

	buffered, err := forebay.NewRouter(
		forebay.Route(enc, forebay.Writer(sw, forebay.Level(slog.LevelDebug), forebay.CloseWriter())))
	check(err)

	slog.New(direct).Info("hello")
	slog.New(buffered).Info("hello")

	report, err := buffered.Close(context.Background())
	check(err)

	fmt.Println(report.Outputs[0].Account)
	// Output:
	// {"level":"INFO","msg":"hello"}
	// accepted=1 delivered=1
}

// Each row of the table in docs/MIGRATING-logf.md has an option or a call here.
func Example_migratingFromLogf_options() {
	errW, err := os.Open(os.DevNull)
	check(err)
	defer errW.Close()
	w := io.Discard

	options := []slab.Options{
		{SlabBytes: 64 << 10},
		{SlabCount: 8},
		{FlushIdle: 100 * time.Millisecond},
		{WhenFull: slab.DropNewest()},
		{WhenFull: slab.Block()},
		{OnError: slab.ErrorsTo(errW)},
	}
	for _, o := range options {
		sw, err := forebay.NewSlabWriter(w, &o)
		check(err)
		check(sw.Flush(context.Background()))
		check(sw.Sync())
		fmt.Fprintln(sw, "one line")
		check(sw.Close())

		stats := sw.Stats()
		fmt.Print(stats.Deliver.Bytes, stats.Slab.Waits, stats.Slab.WaitTime, stats.Dropped.Total(), " ")
		if _, err := sw.Write(nil); !errors.Is(err, batch.ErrClosed) {
			fmt.Print(err)
		}
	}
	// Output: 9 0 0s 0 9 0 0s 0 9 0 0s 0 9 0 0s 0 9 0 0s 0 9 0 0s 0
}

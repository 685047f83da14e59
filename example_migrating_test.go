package forebay_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

type discardConn struct{ io.Writer }

func (discardConn) Close() error { return nil }

// What docs/MIGRATING-logf.md shows.
func Example_migratingFromLogf() {
	file, conn, stderr := os.Stdout, discardConn{io.Discard}, io.Discard
	enc := noTime

	direct, err := forebay.NewRouter(
		forebay.Route(enc, forebay.Output(slog.LevelDebug, file)))
	check(err)

	sw, err := deliver.NewOutput(deliver.ToWriteCloser(conn), &deliver.OutputOptions{
		Slab: slab.Options{
			SlabBytes:     64 << 10,
			SlabCount:     8,
			FlushInterval: 100 * time.Millisecond,
			WhenFull:      slab.Block(),
			OnError:       func(e batch.Event) { fmt.Fprintln(stderr, e) },
		},
	})
	check(err)

	buffered, err := forebay.NewRouter(
		forebay.Route(enc, forebay.OutputCloser(slog.LevelDebug, sw)))
	check(err)

	h := slog.New(buffered)
	h.Info("hello")
	slog.New(direct).Info("hello")

	report, err := buffered.Close(context.Background())
	check(err)
	fmt.Println(report.Outputs[0].Account)
	stats := sw.Stats().Slab
	fmt.Println(stats.SlabCount, stats.SlabsInUse, stats.Waiting)
	// Output:
	// {"level":"INFO","msg":"hello"}
	// accepted=1 delivered=1
	// 8 0 0
}

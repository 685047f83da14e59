package slablog_test

import (
	"context"
	"fmt"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/slablog"
	"github.com/forebay-log/forebay/slab"
)

// A Writer is an io.Writer: each Write stores one record. One consumer reads the Log.
func ExampleNew() {
	w, log, err := slablog.New(&slab.Options{SlabBytes: 32 << 10, SlabCount: 4}, slablog.Consumer{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(w, "one")
	fmt.Fprintln(w, "two")
	log.Close() // makes the remaining records due
	var delivered uint64
	for {
		l, ended := log.Next()
		if ended {
			break
		}
		for _, rec := range l.Batch().All() {
			fmt.Printf("%s", rec.Data)
		}
		if n := l.Batch().Len(); l.Settle(n) {
			delivered += uint64(n)
		}
		l.Release()
	}
	log.End(context.Background(), true)
	log.Leave()
	fmt.Println(log.Account(batch.Account{Delivered: delivered}))
	// Output:
	// one
	// two
	// accepted=2 delivered=2
}

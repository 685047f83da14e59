//go:build linux || darwin

package slab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

// down is a destination that takes nothing.
var down = deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
	return batch.Outcome{Open: batch.All(), Why: errors.New("connection refused")}
})

// The files of dead processes can be looked at and delivered by hand.
func ExampleReplayCrash() {
	dir, err := os.MkdirTemp("", "forebay-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	w, err := newWriter(down, slab.Options{Crash: slab.CrashSafe(dir), CloseTimeout: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(w, "left behind")
	w.Close()

	files, err := slab.CrashFiles(dir)
	for _, f := range files {
		done, err := slab.ReplayCrash(context.Background(), f.Path, func(_ context.Context, b *batch.Batch) batch.Outcome {
			if _, err := os.Stdout.Write(b.AppendTo(nil)); err != nil {
				return batch.FailedOutcome(err)
			}
			return batch.Outcome{}
		}, nil)
		fmt.Println(done.Records, done.Left, err)
	}
	fmt.Println(len(files), err)
	// Output:
	// left behind
	// 1 0 <nil>
	// 1 <nil>
}

// What a dead process has left can be read without a destination, and deleted.
func ExampleReadImage() {
	dir, err := os.MkdirTemp("", "forebay-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	w, err := newWriter(down, slab.Options{Crash: slab.CrashSafe(dir), CloseTimeout: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(w, "left behind")
	w.Close()

	files, err := slab.CrashFiles(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range files {
		image, err := slab.ReadImage(f.Path)
		if err != nil {
			fmt.Println(err)
			continue
		}
		for _, r := range image.Records {
			fmt.Printf("%d %s", r.Ticket, r.Data)
		}
		fmt.Printf("alive=%v damage=%q\n", f.Alive, image.Damage())
		_, err = slab.PurgeCrash(f.Path)
		fmt.Println(err)
	}
	// Output:
	// 1 left behind
	// alive=false damage=""
	// <nil>
}

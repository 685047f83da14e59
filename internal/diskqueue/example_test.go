package diskqueue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/spool"
)

// lines returns a batch of plain lines.
func lines(texts ...string) *batch.Batch {
	var b batch.Batch
	for _, text := range texts {
		b.Append([]byte(text+"\n"), 0, batch.Meta{})
	}
	return &b
}

func tempDir() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "spool")
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

// A process stores batches that it cannot deliver, and the next process reads them.
func Example() {
	dir, remove := tempDir()
	defer remove()

	s, err := diskqueue.Open(dir, &spool.Options{MaxBytes: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	for _, b := range []*batch.Batch{lines("one", "two"), lines("three")} {
		if _, err := s.Append(b); err != nil {
			log.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}

	s, err = diskqueue.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println("recovered:", s.Stats().Recovered)
	for {
		b, seq, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("batch %d: %q\n", seq, b.AppendTo(nil))
		if err := s.Ack(seq); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("left:", s.Stats().Records)
	// Output:
	// recovered: 3
	// batch 1: "one\ntwo\n"
	// batch 2: "three\n"
	// left: 0
}

// Several batches may be in flight. After a failure, Rewind makes Next return all unacknowledged
// batches again, in order.
func ExampleSpool_Rewind() {
	dir, remove := tempDir()
	defer remove()
	s, err := diskqueue.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for _, text := range []string{"a", "b", "c"} {
		if _, err := s.Append(lines(text)); err != nil {
			log.Fatal(err)
		}
	}
	show := func() {
		for {
			b, seq, err := s.Next()
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("%d %q, ", seq, b.AppendTo(nil))
		}
	}
	show()
	if err := s.Ack(1); err != nil {
		log.Fatal(err)
	}
	s.Rewind()
	show()
	// Output:
	// 1 "a\n", 2 "b\n", 3 "c\n", EOF
	// 2 "b\n", 3 "c\n", EOF
}

// Scan reads the records in a spool, even while another process uses it.
func ExampleScan() {
	dir, remove := tempDir()
	defer remove()
	s, err := diskqueue.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Append(lines("one", "two")); err != nil {
		log.Fatal(err)
	}

	for e, err := range diskqueue.Scan(dir, nil) {
		if err != nil {
			log.Fatal(err) // or report the damage and go on
		}
		for _, r := range e.Batch.All() {
			fmt.Printf("batch %d: %q\n", e.Seq, r.Data)
		}
	}
	// Output:
	// batch 1: "one\n"
	// batch 1: "two\n"
}

// Replay passes each batch to a function, such as one that outputhook.Direct returns.
func ExampleSpool_Replay() {
	dir, remove := tempDir()
	defer remove()
	s, err := diskqueue.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Append(lines("one", "two")); err != nil {
		log.Fatal(err)
	}
	done, err := s.Replay(context.Background(), func(_ context.Context, b *batch.Batch) batch.Outcome {
		fmt.Printf("%s", b.AppendTo(nil))
		return batch.Outcome{}
	})
	fmt.Println(done, err)
	// Output:
	// one
	// two
	// 2 <nil>
}

func ExampleOpen_locked() {
	dir, remove := tempDir()
	defer remove()
	s, err := diskqueue.Open(filepath.Join(dir, "spool"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	_, err = diskqueue.Open(filepath.Join(dir, "spool"), nil)
	fmt.Println(errors.Is(err, spool.ErrLocked))
	// Output:
	// true
}

// List, Verify and Purge implement the commands forebay spool ls, verify and purge.
func ExampleList() {
	dir, remove := tempDir()
	defer remove()
	s, err := diskqueue.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Append(lines("one", "two")); err != nil {
		log.Fatal(err)
	}

	l, err := diskqueue.List(dir, false) // this works even while the spool is in use
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range l.Files {
		fmt.Println(f.Name, f.Batches, "batch", f.Pending, "pending")
	}
	if l, err = diskqueue.List(dir, true); err != nil { // true: also verify the content
		log.Fatal(err)
	}
	fmt.Println("damaged:", l.Damaged)

	_, _, err = diskqueue.Purge(dir, false)
	fmt.Println("in use:", errors.Is(err, spool.ErrLocked))
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}
	files, _, err := diskqueue.Purge(dir, false)
	fmt.Println("deleted:", files, err)
	// Output:
	// 00000001.seg 1 batch 2 pending
	// damaged: 0
	// in use: true
	// deleted: 1 <nil>
}

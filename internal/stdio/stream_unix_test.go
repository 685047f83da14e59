//go:build unix

package stdio

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

// records returns a batch of n random records of 1 to longest bytes.
func records(rnd *rand.Rand, n, longest int) *batch.Batch {
	var b batch.Batch
	for i := range n {
		rec := bytes.Repeat([]byte{byte('a' + i%26)}, rnd.IntN(longest))
		b.Append(append(rec, '\n'), 0, batch.Meta{})
	}
	return &b
}

// pipe returns the ends of a pipe, which is closed at the end of the test.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// Every write ends at the end of a record and has at most 4096 bytes, except for a longer record. A
// socket that preserves message boundaries shows the writes.
func TestStreamWritesAtRecordBounds(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Skip("no SOCK_SEQPACKET sockets:", err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	defer r.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	b := records(rnd, 500, 900)
	b.Add(records(rnd, 1, 1).Runs[0])
	b.Add(records(rnd, 3, 4096).Runs[0])
	var long batch.Batch
	long.Append(bytes.Repeat([]byte{'L'}, 10_000), 0, batch.Meta{})
	b.Add(long.Runs[0])
	want := b.AppendTo(nil)

	var got []byte
	var writes []int
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 1<<20)
		for {
			n, err := r.Read(buf)
			if n <= 0 || err != nil {
				return
			}
			got = append(got, buf[:n]...)
			writes = append(writes, n)
		}
	})
	if err := New(w, "w").send(t.Context(), b).Why; err != nil {
		t.Fatal(err)
	}
	w.Close()
	wg.Wait()
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes arrived, want %d", len(got), len(want))
	}
	ends := map[int]bool{}
	off := 0
	for _, rec := range b.All() {
		off += len(rec.Data)
		ends[off] = true
	}
	off = 0
	for _, n := range writes {
		off += n
		if n > pipeBuf || !ends[off] && off < len(want)-10_000 {
			t.Errorf("a write of %d bytes up to byte %d, not at the end of a record", n, off)
		}
	}
	if len(writes) > 500*450/pipeBuf*2 {
		t.Errorf("%d writes for %d bytes", len(writes), len(want))
	}
}

// A pipe receives all records, even if it is or becomes non-blocking. Its mode does not change.
func TestStreamNonBlocking(t *testing.T) {
	for _, when := range []string{"never", "before", "later"} {
		t.Run(when, func(t *testing.T) {
			var p [2]int
			if err := unix.Pipe(p[:]); err != nil {
				t.Fatal(err)
			}
			unix.CloseOnExec(p[0])
			if when == "before" {
				unix.SetNonblock(p[1], true)
			}
			r, w := os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w")
			defer r.Close()
			s := New(w, "w")
			if when == "later" {
				unix.SetNonblock(p[1], true)
			}
			b := records(rand.New(rand.NewPCG(3, 4)), 2000, 1000) // a megabyte: more than the buffer of a pipe
			want := b.AppendTo(nil)
			got := make(chan []byte)
			go func() {
				br := bufio.NewReaderSize(r, 512)
				all, _ := io.ReadAll(br)
				got <- all
			}()
			if err := s.send(t.Context(), b).Why; err != nil {
				t.Fatal(err)
			}
			flags, err := unix.FcntlInt(uintptr(p[1]), unix.F_GETFL, 0)
			if err != nil || (flags&unix.O_NONBLOCK != 0) != (when != "never") {
				t.Errorf("flags are now %#x, %v", flags, err)
			}
			w.Close()
			if all := <-got; !bytes.Equal(all, want) {
				t.Errorf("%d bytes arrived, want %d", len(all), len(want))
			}
		})
	}
}

// The lines of two writers to one pipe do not mix.
func TestStreamShared(t *testing.T) {
	r, w := pipe(t)
	var wg sync.WaitGroup
	const n = 400
	for k := range 2 {
		wg.Go(func() {
			s := New(w, "w")
			for i := range n {
				var b batch.Batch
				for j := range 8 {
					b.Append(fmt.Appendf(nil, "%d %s\n", k, strings.Repeat(string(rune('a'+k)), (i*37+j*501)%4000)), 0, batch.Meta{})
				}
				if err := s.send(t.Context(), &b).Why; err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan int)
	go func() {
		lines := 0
		sc := bufio.NewScanner(r)
		for sc.Scan() {
			lines++
			line := sc.Text()
			k := line[0] - '0'
			if k > 1 || strings.Trim(line[2:], string('a'+k)) != "" {
				t.Errorf("mixed line %.60q", line)
			}
		}
		done <- lines
	}()
	wg.Wait()
	w.Close()
	if lines := <-done; lines != 2*n*8 {
		t.Errorf("%d lines, want %d", lines, 2*n*8)
	}
}

// After the reader has closed the pipe, send returns the incomplete records with ErrGone, and Gone
// is closed.
func TestStreamReaderGone(t *testing.T) {
	r, w := pipe(t)
	s := New(w, "stdout")
	b := records(rand.New(rand.NewPCG(5, 6)), 1000, 1000)
	read := make(chan int, 1)
	go func() {
		n, _ := io.ReadFull(r, make([]byte, 50_000))
		r.Close()
		read <- n
	}()
	select {
	case <-s.Gone():
		t.Error("Gone is closed before the first send")
	default:
	}
	o := s.send(t.Context(), b)
	<-s.Gone()
	if err := o.Why; o.Advice != batch.Gone || !errors.Is(err, ErrGone) || !errors.Is(err, syscall.EPIPE) || !strings.Contains(err.Error(), "stdout") {
		t.Fatalf("%v (%v)", err, o.Advice)
	}
	if n := o.Open.Len(b.Len()); n == 0 || n == b.Len() || !o.Refused.Empty() {
		t.Errorf("%d of %d records are open", n, b.Len())
	}
	if got := <-read; got != 50_000 {
		t.Errorf("the reader got %d bytes", got)
	}
	for range 2 {
		if o := s.send(t.Context(), b); o.Open.Len(b.Len()) != b.Len() || o.Advice != batch.Gone || !errors.Is(o.Why, ErrGone) {
			t.Errorf("another send: %+v", o)
		}
	}
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
}

// If the reader stops reading, send ends when its context ends. The next send completes the partly
// written record, or writes a newline after it if the record is not in the batch.
func TestStreamStalled(t *testing.T) {
	for _, giveUp := range []bool{false, true} {
		r, w := pipe(t)
		s := New(w, "w")
		var b batch.Batch
		b.Append([]byte("first\n"), 0, batch.Meta{})
		b.Append(append(bytes.Repeat([]byte{'x'}, 1<<20), '\n'), 0, batch.Meta{})
		b.Append([]byte("last\n"), 0, batch.Meta{})
		all := &b
		ctx, cancel := context.WithCancel(t.Context())
		full := make(chan struct{})
		go func() {
			defer close(full)
			for { // waits until the pipe is full
				var fds = [1]unix.PollFd{{Fd: int32(w.Fd()), Events: unix.POLLOUT}}
				if n, err := unix.Poll(fds[:], 0); n == 0 && err == nil {
					cancel()
					return
				}
			}
		}()
		o := s.send(ctx, all)
		<-full
		if !reflect.DeepEqual(o.Open, batch.From(1)) || o.Advice != batch.Again || !errors.Is(o.Why, context.Canceled) {
			t.Fatalf("%+v", o)
		}
		got := make(chan []byte)
		go func() { p, _ := io.ReadAll(r); got <- p }()
		from := 1
		if giveUp {
			from = 2
		}
		if err := s.send(t.Context(), all.Slice(nil, from, 3)).Why; err != nil {
			t.Fatal(err)
		}
		w.Close()
		text := string(<-got)
		lines := strings.Split(text, "\n")
		if len(lines) != 4 || lines[0] != "first" || strings.Trim(lines[1], "x") != "" || lines[2] != "last" || lines[3] != "" ||
			(len(lines[1]) == 1<<20) == giveUp {
			t.Errorf("given up %v: %d lines, the second of %d bytes", giveUp, len(lines), len(lines[1]))
		}
	}
}

// A regular file can be a standard stream. Check, send and Sync report a closed file.
func TestStreamRegularFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := records(rand.New(rand.NewPCG(7, 8)), 300, 1000)
	s := New(f, "stdout")
	if err := s.send(t.Context(), b).Why; err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(b.AppendTo(nil)) {
		t.Errorf("the file has %q, %v", got, err)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	f.Close()
	if err := s.Check(); !errors.Is(err, errNotOpen) {
		t.Errorf("closed file: %v", err)
	}
	if err := s.send(t.Context(), b).Why; !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "stdout") {
		t.Errorf("closed file: %v", err)
	}
	if err := s.Sync(); err == nil {
		t.Error("closed file: Sync returns no error")
	}
}

// An Output delivers all records to a pipe.
func TestStreamWithOutput(t *testing.T) {
	r, w := pipe(t)
	sw, err := deliver.NewOutput(New(w, "w"), &deliver.OutputOptions{Slab: slab.Options{WhenFull: slab.Block()}})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte)
	go func() { p, _ := io.ReadAll(r); got <- p }()
	var want []byte
	for i := range 20_000 {
		line := fmt.Appendf(nil, "line %d\n", i)
		want = append(want, line...)
		if err := sw.WriteRecord(line, batch.Meta{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	report, err := sw.Shutdown(ctx)
	if err != nil || report.Delivered != 20_000 {
		t.Error(report, err)
	}
	if err := report.Check(); err != nil {
		t.Error(err)
	}
	w.Close()
	if p := <-got; !bytes.Equal(p, want) {
		t.Errorf("%d bytes arrived, want %d", len(p), len(want))
	}
}

// Check, send and Gone report a file that is open for reading only.
func TestStreamNotForWriting(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := New(f, "stdout")
	if err := s.Check(); !errors.Is(err, errNotOpen) {
		t.Error(err)
	}
	b := records(rand.New(rand.NewPCG(9, 10)), 3, 10)
	if o := s.send(t.Context(), b); !errors.Is(o.Why, ErrGone) || o.Open.Len(3) != 3 {
		t.Errorf("%+v", o)
	}
	<-s.Gone()
	for _, mode := range []int{os.O_WRONLY, os.O_RDWR} { // valid modes
		null, err := os.OpenFile(os.DevNull, mode, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := New(null, "x").Check(); err != nil {
			t.Error(err)
		}
		null.Close()
	}
}

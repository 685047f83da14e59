package spool

import (
	"io"
	"testing"

	"github.com/forebay-log/forebay/internal/vfs"
)

// Batches are joined up to one that is damaged; the spool goes on behind it as ever.
func TestNextUpToDamage(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	for first := 0; first < 60; first += 10 {
		b := numbered(first, 10, nil, formA)
		b.Origin = sharedOrigin(first)
		if _, err := s.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	next := func(bytes, records, want int, seq uint64) {
		t.Helper()
		b, got, err := s.NextUpTo(bytes, records)
		if want == 0 {
			if err != io.EOF {
				t.Fatalf("%v, %v", b, err)
			}
			return
		}
		if err != nil || b.Len() != want || got != seq {
			t.Fatalf("batch %d of %d records, %v; want %d of %d", got, b.Len(), err, seq, want)
		}
	}
	all := 1 << 30
	next(all, 29, 20, 2)
	next(all, all, 40, 6)
	s.Rewind()
	next(0, 0, 10, 1)
	if err := s.Ack(1); err != nil {
		t.Fatal(err)
	}
	s.Rewind()
	name := segmentName(1)
	data := content(t, mem, name)
	data[len(data)/2] ^= 1 // in the third or fourth
	setContent(t, mem, name, data)
	b, seq, err := s.NextUpTo(all, all)
	if err != nil || b.Len() >= 50 || b.Len()%10 != 0 || int(seq) != 1+b.Len()/10 {
		t.Fatalf("batch %d, %v", seq, err)
	}
	next(all, all, 0, 0) // the rest of the segment is given up
	if got := s.Stats().Corrupt; int(got) != 50-b.Len() {
		t.Errorf("%d records are damaged", got)
	}
	if err := s.Ack(seq); err != nil {
		t.Fatal(err)
	}
	mustBalance(t, s)
	mustClose(t, s)
}

package batch_test

import (
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// Append copies its record. It never writes to the memory of a slab that Add shares, not even after
// Reset.
func TestAppendLeavesSharedMemory(t *testing.T) {
	slab := []byte("one|two|free")
	shared := layout.NewRun(slab[:4], []layout.Slot{{Ticket: 1, Len: 4}})
	var b batch.Batch
	for range 2 {
		b.Append([]byte("zero|"), 0, batch.Meta{})
		b.Add(shared)
		rec := []byte("TWO|")
		b.Append(rec, 0, batch.Meta{Level: 4, Stream: 7})
		b.Append([]byte("THREE|"), 9, batch.Meta{})
		rec[0] = 'x'
		if got := string(b.AppendTo(nil)); got != "zero|one|TWO|THREE|" || b.Len() != 4 || b.Bytes() != len(got) {
			t.Errorf("%q, %d records, %d bytes", got, b.Len(), b.Bytes())
		}
		if two := b.At(2); two.Ticket != 2 || two.Level != 4 || two.Stream != 7 || b.Last() != 9 {
			t.Errorf("%+v, last %d", two, b.Last())
		}
		if string(slab) != "one|two|free" {
			t.Errorf("the slab is %q", slab)
		}
		b.Reset()
	}
}

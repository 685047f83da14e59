package stdio

import (
	"os"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

func TestStreamsDoNotAllocate(t *testing.T) {
	var b batch.Batch
	for range 1000 { // more than one write into a pipe
		b.Append([]byte("a record of a stream\n"), 0, batch.Meta{})
	}
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s, lines := New(out, "null"), &b
	if n := allocs.PerRun(100, func() {
		if err := s.send(t.Context(), lines).Why; err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("stream: %v allocations per batch", n)
	}
}

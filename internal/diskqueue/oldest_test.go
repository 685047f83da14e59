package diskqueue

import (
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// Stats.Oldest is the age of the oldest pending record. It ignores acknowledged records in the same
// segment.
func TestOldestInAnOldSegment(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := mustOpen(t, vfs.NewMem(), &spool.Options{})
		began := time.Now()
		mustAppend(t, s, 0, 3)
		time.Sleep(time.Second)
		mustAppend(t, s, 3, 3)
		if at := s.Stats().Oldest; !at.Equal(began) {
			t.Errorf("%s, want %s", at, began)
		}
		var last uint64
		for range 2 {
			_, seq, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			last = seq
		}
		if err := s.Ack(last); err != nil {
			t.Fatal(err)
		}
		if at := s.Stats().Oldest; !at.IsZero() {
			t.Error(at)
		}
		time.Sleep(time.Hour)
		began = time.Now()
		mustAppend(t, s, 6, 3)
		time.Sleep(time.Second)
		mustAppend(t, s, 9, 3)
		if at := s.Stats().Oldest; !at.Equal(began) {
			t.Errorf("%s, want %s", at, began)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

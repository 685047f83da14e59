package fluent

import (
	"testing"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
)

// What a client keeps shows in the figure of its memory, and what it gives back
// before the end, too.
func TestStallSeesMemory(t *testing.T) {
	hoarder := func(mib int) func(string, int) (*Poster, error) {
		return func(string, int) (*Poster, error) {
			var keep [][]byte
			return &Poster{Local: true, Drain: func() error { return nil }, Post: func(int, any) {
				if len(keep) < mib { // in the first call: on a busy machine there are few
					for len(keep) < mib {
						keep = append(keep, make([]byte, 1<<20))
					}
					time.Sleep(10 * time.Millisecond)
				}
			}}, nil
		}
	}
	for _, mib := range []int{0, 30} {
		s, err := stalled(&h.Env{Quick: true}, hoarder(mib))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.More["MiB"]; got < float64(mib) || got > float64(mib)+4 {
			t.Errorf("%d MiB kept, %v seen", mib, got)
		}
	}
}

// Ours has the memory that was planned, and reports it.
func TestStallPlan(t *testing.T) {
	s, err := stalled(&h.Env{Quick: true}, OursPlanned)
	if err != nil {
		t.Fatal(err)
	}
	planned := float64(StallPlan.SlabBytes*StallPlan.SlabCount) / (1 << 20)
	if s.More["slabs-MiB"] != planned || s.More["MiB"] < planned || s.More["MiB"] > 1.1*planned || s.More["lost"] != 0 {
		t.Errorf("planned %v: %v", planned, s.More)
	}
	for name, mk := range map[string]func(string, int) (*Poster, error){"null": Null, "copy": Copy, "copy and send": CopyAndSend} {
		s, err := stalled(&h.Env{Quick: true}, mk)
		if err != nil || s.More["lost"] != 0 || s.Ops == 0 {
			t.Errorf("%s: %v, %v", name, err, s)
		}
	}
}

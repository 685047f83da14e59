package intake

import "testing"

// The lines of one read, and of the next, have increasing times of arrival. Loki would store only
// one of two lines with equal text and time.
func TestTimesOfArrivalDiffer(t *testing.T) {
	in := &Intake{In: &Inlet{}}
	in.Begin()
	last := in.now()
	for range 1000 {
		at := in.now()
		if !at.After(last) {
			t.Fatalf("%v after %v", at, last)
		}
		last = at
	}
	in.End()
	in.Begin()
	defer in.End()
	if !in.arrived.IsZero() {
		t.Error("the time of the last read is used for the next")
	}
}

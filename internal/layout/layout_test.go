package layout

import (
	"slices"
	"testing"
)

// AppendSlots, for forward and backward runs, appends slots that describe the same records in the
// copied bytes.
func TestAppendSlotsDescribesCopiedRecords(t *testing.T) {
	block := []byte("....onetwothree....")
	forward := []Slot{{Ticket: 1, Off: 4, Len: 3, Stream: 7}, {Ticket: 2, Off: 7, Len: 3, Level: 4}, {Ticket: 3, Off: 10, Len: 5, Time: 9}}
	backward := slices.Clone(forward)
	slices.Reverse(backward)
	var data []byte
	var slots []Slot
	for _, r := range []Run{NewRun(block, forward), NewBackRun(block, backward), NewRun(block, nil), NewBackRun(block, backward[:1])} {
		slots = r.AppendSlots(slots, uint32(len(data)))
		data = append(data, r.Data()...)
	}
	all := NewRun(data, slots)
	var got []string
	for i := range all.Len() {
		got = append(got, string(all.Record(i)))
	}
	if want := []string{"one", "two", "three", "one", "two", "three", "three"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for i, want := range []Slot{forward[0], forward[1], forward[2], forward[0], forward[1], forward[2], forward[2]} {
		s := slots[i]
		s.Off = want.Off
		if s != want {
			t.Errorf("slot %d is %+v", i, slots[i])
		}
	}
}

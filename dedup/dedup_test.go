package dedup

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestIDTextForm(t *testing.T) {
	id := ID{Origin: [16]byte{0xab, 15: 1}, Ticket: 1<<64 - 1}
	text := id.String()
	if text != "ab000000000000000000000000000001-18446744073709551615" {
		t.Error(text)
	}
	if got, err := Parse([]byte(text)); got != id || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "x", text + "0", text[:33], strings.Replace(text, "-", "+", 1), "g" + text[1:], text[:33] + "-1", text[:33] + "18446744073709551616"} {
		if got, err := Parse([]byte(bad)); err == nil || got != (ID{}) || !strings.Contains(err.Error(), "want 32 hexadecimal digits") {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("ab000000000000000000000000000001-7"))
	f.Add([]byte("ab000000000000000000000000000001-07"))
	f.Fuzz(func(t *testing.T, text []byte) {
		id, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(id.Append(nil)); again != id || err != nil {
			t.Errorf("%q: %v, then %v, %v", text, id, again, err)
		}
	})
}

// For tickets within the window, a Window agrees with a set of all ids. Tickets below the window
// count as new.
func TestWindowMatchesASet(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		size := 64 * (1 + rng.IntN(4))
		w := New(&Options{Records: size - rng.IntN(60), Origins: 3})
		came, top := map[ID]bool{}, [3]uint64{}
		var want Stats
		for range 2000 {
			n := rng.IntN(3)
			at := top[n]
			switch rng.IntN(10) {
			case 0:
				at += uint64(rng.IntN(3 * size))
			case 1, 2, 3:
				at -= min(at, uint64(rng.IntN(2*size)))
			default:
				at++
			}
			id := ID{Origin: [16]byte{byte(n + 1)}, Ticket: max(1, at)}
			behind := id.Ticket <= top[n] && top[n]-id.Ticket >= uint64(size)
			first := behind || !came[id]
			if got := w.First(id); got != first {
				t.Fatalf("seed %d: ticket %d with %d at the top: first %v", seed, id.Ticket, top[n], got)
			}
			switch {
			case behind:
				want.Unknown++
				want.First++
			case first:
				want.First++
			default:
				want.Twice++
			}
			came[id] = true
			top[n] = max(top[n], id.Ticket)
		}
		if got := w.Stats(); got != want {
			t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
		}
	}
}

// If there are too many origins, the least recently seen one is removed.
func TestWindowRemovesLeastRecentOrigin(t *testing.T) {
	w := New(&Options{Records: 1, Origins: 2})
	id := func(origin byte) ID { return ID{Origin: [16]byte{origin}, Ticket: 5} }
	for _, step := range []struct {
		origin byte
		first  bool
	}{{1, true}, {2, true}, {1, false}, {3, true}, {1, false}, {2, true}, {3, true}, {2, false}} {
		if got := w.First(id(step.origin)); got != step.first {
			t.Errorf("origin %d: first %v", step.origin, got)
		}
	}
	if s := w.Stats(); s.Forgotten != 3 {
		t.Errorf("%+v", s)
	}
}

// A record with the zero ID is never reported as received before.
func TestZeroIDIsAlwaysFirst(t *testing.T) {
	w := New(nil)
	for range 2 {
		if !w.First(ID{Ticket: 1}) {
			t.Error("a record without a name counts as one that came")
		}
	}
	if s := w.Stats(); s != (Stats{First: 2, Unknown: 2}) {
		t.Errorf("%+v", s)
	}
}

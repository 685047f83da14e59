package diskqueue

import (
	"bytes"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// indexOfSlots returns the encoded index of slots and a frame header for it.
func indexOfSlots(slots []layout.Slot, payload int) ([]byte, frameHeader) {
	b := &batch.Batch{Runs: []layout.Run{layout.NewRun(nil, slots)}}
	p, records := appendIndex(nil, b)
	return p, frameHeader{entries: uint32(len(slots)), records: uint32(records), payload: uint32(payload), index: uint32(len(p))}
}

// Decoding an index returns the slots that were encoded.
func TestIndexRoundTrip(t *testing.T) {
	r := testSeed(t)
	extreme := []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1_700_000_000_000_000_000}
	for range 500 {
		var slots []layout.Slot
		off := uint32(0)
		now := r.Int63()
		for range r.Intn(50) {
			now += r.Int63n(1<<(r.Intn(60)+1)) - r.Int63n(1<<(r.Intn(60)+1))
			s := layout.Slot{Off: off, Len: uint32(r.Intn(1 << (r.Intn(25) + 1))), Ticket: uint64(len(slots) + 1), Time: now}
			if r.Intn(3) == 0 {
				s.Ticket = r.Uint64()
			}
			if r.Intn(5) == 0 {
				s.Time = extreme[r.Intn(len(extreme))]
			}
			if r.Intn(4) == 0 {
				s.Stream, s.Level, s.Flags = r.Uint32(), int8(r.Intn(256)-128), uint8(r.Intn(256))
			}
			off += s.Len
			slots = append(slots, s)
		}
		p, h := indexOfSlots(slots, int(off))
		if len(slots) == 0 {
			p, h = nil, frameHeader{}
		}
		got, err := decodeIndex(nil, p, &h, anyStream)
		if err != nil || !slices.Equal(got, slots) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, slots)
		}
		if len(p) > len(slots)*(1+10+5+1+1+10+5) || len(p) < len(slots)*minEntryBytes {
			t.Fatalf("%d bytes for %d entries", len(p), len(slots))
		}
	}
}

// An index is rejected if it contradicts the header of its frame.
func TestIndexMustAddUp(t *testing.T) {
	slots := []layout.Slot{{Ticket: 1, Len: 5}, {Ticket: 2, Off: 5, Len: 7, Flags: layout.FlagMarker}}
	p, h := indexOfSlots(slots, 12)
	if _, err := decodeIndex(nil, p, &h, anyStream); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(h *frameHeader, p []byte) []byte{
		"a payload too long":  func(h *frameHeader, p []byte) []byte { h.payload++; return p },
		"a payload too short": func(h *frameHeader, p []byte) []byte { h.payload--; return p },
		"an entry more":       func(h *frameHeader, p []byte) []byte { h.entries++; return p },
		"an entry less":       func(h *frameHeader, p []byte) []byte { h.entries--; return p },
		"a record more":       func(h *frameHeader, p []byte) []byte { h.records++; return p },
		"a record less":       func(h *frameHeader, p []byte) []byte { h.records--; return p },
		"a byte more":         func(_ *frameHeader, p []byte) []byte { return append(p, 0) },
		"a byte less":         func(_ *frameHeader, p []byte) []byte { return p[:len(p)-1] },
		"an unknown field":    func(_ *frameHeader, p []byte) []byte { p[0] |= 0x80; return p },
	} {
		h := h
		if _, err := decodeIndex(nil, change(&h, slices.Clone(p)), &h, anyStream); err != errIndex {
			t.Errorf("%s: %v", name, err)
		}
	}
	refuse := func(uint32) (uint32, bool) { return 0, false }
	if _, err := decodeIndex(nil, p, &h, refuse); err != errStreams {
		t.Errorf("an unknown stream: %v", err)
	}
}

// The index is small if tickets are consecutive, all records have the same stream, and their times
// are close.
func TestIndexIsSmall(t *testing.T) {
	b := benchBatch(64 << 10)
	p, _ := appendIndex(nil, b)
	if per := float64(len(p)) / float64(b.Len()); per > 6.5 {
		t.Errorf("%.1f bytes per record", per)
	}
}

// FuzzIndex decodes arbitrary bytes. The decoder must not panic, its memory must be bounded by the
// input, and its result must match the header.
func FuzzIndex(f *testing.F) {
	r := rand.New(rand.NewSource(1))
	for range 10 {
		var slots []layout.Slot
		off := uint32(0)
		for i := range 1 + r.Intn(9) {
			s := layout.Slot{Ticket: uint64(i * i), Time: int64(i % 3), Off: off, Len: uint32(r.Intn(30)), Stream: uint32(i / 3), Level: int8(i), Flags: uint8(i % 2)}
			off += s.Len
			slots = append(slots, s)
		}
		p, h := indexOfSlots(slots, int(off))
		f.Add(p, h.entries, h.records, h.payload)
	}
	f.Add([]byte{0, 0}, uint32(math.MaxUint32), uint32(0), uint32(0))
	f.Add(bytes.Repeat([]byte{255}, 40), uint32(3), uint32(3), uint32(10))
	f.Fuzz(func(t *testing.T, p []byte, entries, records, payload uint32) {
		h := frameHeader{entries: entries, records: records, payload: payload}
		slots, err := decodeIndex(nil, p, &h, anyStream)
		if cap(slots) > len(p)+64 {
			t.Fatalf("room for %d slots from %d bytes", cap(slots), len(p))
		}
		if err != nil {
			return
		}
		off, n := uint64(0), uint32(0)
		for _, s := range slots {
			if uint64(s.Off) != off {
				t.Fatalf("offset %d, want %d", s.Off, off)
			}
			off += uint64(s.Len)
			if s.Flags&layout.FlagMarker == 0 {
				n++
			}
		}
		if off != uint64(payload) || uint32(len(slots)) != entries || n != records {
			t.Fatalf("%d entries, %d records, %d bytes; the header has %d, %d, %d", len(slots), n, off, entries, records, payload)
		}
	})
}

func BenchmarkIndex(b *testing.B) {
	in := benchBatch(64 << 10)
	p, records := appendIndex(nil, in)
	h := frameHeader{entries: uint32(in.Len()), records: uint32(records), payload: uint32(in.Bytes())}
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			p, _ = appendIndex(p[:0], in)
		}
	})
	b.Run("decode", func(b *testing.B) {
		var slots []layout.Slot
		for b.Loop() {
			var err error
			if slots, err = decodeIndex(slots[:0], p, &h, anyStream); err != nil {
				b.Fatal(err)
			}
		}
	})
}

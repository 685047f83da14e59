package loki

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"
)

// A snappy compresses blocks in the snappy format, framing excluded
// (https://github.com/google/snappy/blob/main/format_description.txt). It is made
// for log entries, each of which mostly repeats the one before it at nearly the
// same distance: that distance is tried before the table is asked. That makes it a
// third faster on entries than a search for the best match, and what it makes of them
// a tenth larger.
//
// The table belongs to whoever owns the snappy, so that compressing allocates
// nothing whatever the garbage collector does. A snappy is used by one goroutine
// at a time.
type snappy struct {
	base  uint32 // positions are counted from here, so that older ones are out of reach
	table [snappyTable]uint32
}

const (
	snappyBits   = 13
	snappyTable  = 1 << snappyBits
	snappyWindow = 1<<16 - 1 // largest offset of the form with two bytes
	snappyMargin = 16        // bytes at the end that are not looked at in words
)

// snappyBound is the size of n bytes compressed at most: all one literal, or a
// copy of 4 bytes or more in 3 between literals.
func snappyBound(n int) int { return 32 + n + n/6 }

func at32(p unsafe.Pointer, i int) uint32 {
	return binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(p, i))[:])
}

func at64(p unsafe.Pointer, i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(p, i))[:])
}

// put24 writes the three lower bytes of v, and a fourth.
func put24(p unsafe.Pointer, i int, v uint32) {
	binary.LittleEndian.PutUint32((*[4]byte)(unsafe.Add(p, i))[:], v)
}

func snappyHash(v uint64) uint32 {
	return uint32((v << 16) * 227718039650203 >> (64 - snappyBits)) // of 6 bytes
}

// encode returns src compressed, in dst's memory if that is large enough.
func (e *snappy) encode(dst, src []byte) []byte {
	if n := snappyBound(len(src)); cap(dst) < n {
		dst = make([]byte, n)
	}
	dst = dst[:cap(dst)]
	return dst[:e.block(dst, binary.PutUvarint(dst, uint64(len(src))), src)]
}

// encodeSpans returns compressed what the n bytes of spans are one after the other.
// No match reaches from one span into another, so short ones are better copied
// together before.
func (e *snappy) encodeSpans(dst []byte, spans [][]byte, n int) []byte {
	if bound := snappySpansBound(n, len(spans)); cap(dst) < bound {
		dst = make([]byte, bound)
	}
	dst = dst[:cap(dst)]
	d := binary.PutUvarint(dst, uint64(n))
	for _, src := range spans {
		d = e.block(dst, d, src)
	}
	return dst[:d]
}

// snappySpansBound is snappyBound for n bytes in several spans.
func snappySpansBound(n, spans int) int { return snappyBound(n) + 8*spans }

// block writes src compressed to dst[d:], where there must be room for
// snappyBound(len(src)) bytes, and returns where it ends.
func (e *snappy) block(dst []byte, d int, src []byte) int {
	n := len(src)
	if n <= snappyMargin {
		return d + putLiteral(dst[d:], src)
	}
	if uint64(e.base)+snappyWindow+1+uint64(n) > math.MaxUint32 {
		*e = snappy{}
	}
	// Position s is noted as base+s. What an earlier src noted is more than a
	// window below.
	base := e.base + snappyWindow + 1
	e.base = base + uint32(n)
	p := unsafe.Pointer(unsafe.SliceData(src))
	q := unsafe.Pointer(unsafe.SliceData(dst))
	limit := n - snappyMargin
	table := &e.table
	lit, rep, s := 0, 1, 1
	for s < limit {
		// Look for bytes that stood before: at the distance of the last match, in the
		// next eight, since what differs between two entries is mostly short; or
		// anywhere, at s and the two places behind it.
		cv := at64(p, s)
		var off int
		if same := bits.LeadingZeros64(cv ^ at64(p, s-rep)); same >= 40 {
			table[snappyHash(cv)] = base + uint32(s)
			s, off = s+8-same>>3, rep
		} else {
			at := base + uint32(s)
			h0, h1, h2 := snappyHash(cv), snappyHash(cv>>8), snappyHash(cv>>16)
			o0, o1 := at-table[h0], at+1-table[h1]
			table[h0], table[h1] = at, at+1
			if o0 <= snappyWindow && uint32(cv) == at32(p, s-int(o0)) {
				off = int(o0)
			} else if o1 <= snappyWindow && uint32(cv>>8) == at32(p, s+1-int(o1)) {
				s, off = s+1, int(o1)
			} else {
				o2 := at + 2 - table[h2]
				table[h2] = at + 2
				if o2 > snappyWindow || uint32(cv>>16) != at32(p, s+2-int(o2)) {
					s += 4 + (s-lit)>>6
					continue
				}
				s, off = s+2, int(o2)
			}
			rep = off
		}
		for s > lit && s > off && src[s-1] == src[s-1-off] {
			s--
		}
		// What was new, then the match.
		if k := s - lit; k > 0 {
			if k <= 16 {
				dst[d] = byte(k-1) << 2
				*(*[16]byte)(unsafe.Add(q, d+1)) = *(*[16]byte)(unsafe.Add(p, lit))
				d += 1 + k
			} else {
				d += putLiteral(dst[d:], src[lit:s])
			}
		}
		m := s + 4
		for {
			if m > limit {
				for m < n && src[m] == src[m-off] {
					m++
				}
				break
			}
			if x := at64(p, m) ^ at64(p, m-off); x != 0 {
				m += bits.TrailingZeros64(x) >> 3
				break
			}
			m += 8
		}
		k := m - s
		for k >= 68 {
			put24(q, d, 63<<2|2|uint32(off)<<8)
			d, k = d+3, k-64
		}
		if k > 64 {
			put24(q, d, 59<<2|2|uint32(off)<<8)
			d, k = d+3, k-60
		}
		if k >= 12 || off >= 2048 {
			put24(q, d, uint32(k-1)<<2|2|uint32(off)<<8)
			d += 3
		} else {
			dst[d], dst[d+1] = byte(off>>8)<<5|byte(k-4)<<2|1, byte(off)
			d += 2
		}
		s, lit = m, m
		if s < limit {
			table[snappyHash(at64(p, s-2))] = base + uint32(s-2)
		}
	}
	return d + putLiteral(dst[d:], src[lit:])
}

// putLiteral writes lit as a literal and returns the number of bytes.
func putLiteral(dst, lit []byte) int {
	n := len(lit) - 1
	switch {
	case n < 0:
		return 0
	case n < 60:
		dst[0] = byte(n) << 2
		return 1 + copy(dst[1:], lit)
	case n < 1<<8:
		dst[0], dst[1] = 60<<2, byte(n)
		return 2 + copy(dst[2:], lit)
	case n < 1<<16:
		dst[0], dst[1], dst[2] = 61<<2, byte(n), byte(n>>8)
		return 3 + copy(dst[3:], lit)
	}
	dst[0] = 63 << 2
	binary.LittleEndian.PutUint32(dst[1:], uint32(n))
	return 5 + copy(dst[5:], lit)
}

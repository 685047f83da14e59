package spool

import (
	"hash/crc32"
	"io"

	"github.com/forebay-log/forebay/internal/vfs"
)

// The cursor file has two slots, written in turn, so that one is whole whatever
// happens to the other.
const (
	cursorMagic     = "fbcursr\n"
	cursorSlotBytes = 64
	cursorStride    = 4096 // slots lie on different pages
	cursorFileBytes = 2 * cursorStride
)

// cursorState is what the cursor file remembers.
type cursorState struct {
	gen     uint64 // of this write; the higher slot counts
	acked   mark   // everything before it is settled
	segment uint64 // highest segment number given out
}

func (c *cursorState) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, cursorMagic...)
	dst = le.AppendUint32(dst, 0) // checksum, below
	dst = le.AppendUint32(dst, formatVersion)
	dst = le.AppendUint64(dst, c.gen)
	dst = le.AppendUint64(dst, c.acked.seq)
	dst = le.AppendUint64(dst, c.acked.rec)
	dst = le.AppendUint64(dst, c.segment)
	dst = append(dst, make([]byte, cursorSlotBytes-(len(dst)-at))...)
	le.PutUint32(dst[at+8:], crc32.Checksum(dst[at+12:], castagnoli))
	return dst
}

func (c *cursorState) parse(p []byte) bool {
	if string(p[:8]) != cursorMagic || crc32.Checksum(p[12:cursorSlotBytes], castagnoli) != le.Uint32(p[8:]) ||
		le.Uint32(p[12:]) != formatVersion {
		return false
	}
	*c = cursorState{
		gen:     le.Uint64(p[16:]),
		acked:   mark{seq: le.Uint64(p[24:]), rec: le.Uint64(p[32:])},
		segment: le.Uint64(p[40:]),
	}
	return c.acked.seq >= 1 && c.acked.seq <= maxNumber && c.acked.rec <= maxNumber && c.segment <= maxNumber
}

// readCursor returns the newer of the two slots. Without a readable one it
// returns the beginning, and blank says whether that is because none was ever
// written.
func readCursor(f io.ReaderAt) (c cursorState, blank bool, err error) {
	c.acked.seq = 1
	found, blank := false, true
	for off := int64(0); off < cursorFileBytes; off += cursorStride {
		var p [cursorSlotBytes]byte
		var s cursorState
		n, err := f.ReadAt(p[:], off)
		if err != nil && err != io.EOF {
			return c, false, err
		}
		if n == len(p) && s.parse(p[:]) && (!found || s.gen > c.gen) {
			c, found = s, true
		}
		blank = blank && allZero(p[:])
	}
	return c, blank && !found, nil
}

// cursor is the open cursor file; Spool.readMu guards it.
type cursor struct {
	f     vfs.File
	state cursorState
	buf   []byte
}

// write stores m as acknowledged. When it returns nil that survives the death of
// the process.
func (c *cursor) write(m mark, segment uint64) error {
	next := cursorState{gen: c.state.gen + 1, acked: m, segment: segment}
	c.buf = next.append(c.buf[:0])
	if _, err := c.f.WriteAt(c.buf, int64(next.gen%2)*cursorStride); err != nil {
		return err // the other slot still holds the state before
	}
	c.state = next
	return nil
}

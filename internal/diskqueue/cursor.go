package diskqueue

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// The cursor file has two slots, written alternately, so that a torn write leaves the other one
// intact. Readers use the valid slot with the higher generation.
//
//	   0 | magic · crc · version · generation · acked · segment · end | settled tickets |
//	4096 | the same, one generation older or newer                    |                 |
//
// The file is overwritten in place and never grows, so an acknowledgement needs no disk space.
const (
	cursorMagic     = "fbcursr\n"
	cursorVersion   = 1
	cursorSlotBytes = 64
	cursorStride    = 4096 // slots are on different pages, which reach the disk independently
	cursorFileBytes = 2 * cursorStride
)

// cursorState is the content of the cursor file. The fields are in the order of the file.
type cursorState struct {
	gen     uint64 // generation of this slot; readers use the slot with the higher one
	acked   mark   // all batches before this mark are settled
	segment uint64 // highest segment number used so far
	end     mark   // end of the last segment when the slot was written; seq 0: unknown
}

// cutOff returns an error if batches are missing at the end of the spool, and otherwise nil. end is
// the mark at which the existing segments end. Batches are missing if c contains a later end,
// unless they were acknowledged: then their segments were deleted. last is the last existing
// segment, or nil if there is none. The error names last if that file was truncated, and otherwise
// the missing segment.
func (c *cursorState) cutOff(last *segment, end mark) *spool.CorruptError {
	if c.acked.seq > end.seq {
		end = c.acked
	}
	if c.end.seq <= end.seq {
		return nil
	}
	e := &spool.CorruptError{Segment: segmentName(c.segment), Records: max(c.end.rec, end.rec) - end.rec, Err: errCutOff}
	if last != nil && last.id >= c.segment {
		e.Segment, e.Offset = last.name, last.size
	}
	return e
}

// append appends the slot with the state c to dst.
func (c *cursorState) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, cursorMagic...)
	dst = le.AppendUint32(dst, 0) // room for the checksum, which is computed below
	dst = le.AppendUint32(dst, cursorVersion)
	for _, v := range [...]uint64{c.gen, c.acked.seq, c.acked.rec, c.segment, c.end.seq, c.end.rec} {
		dst = le.AppendUint64(dst, v)
	}
	dst = append(dst, make([]byte, cursorSlotBytes-(len(dst)-at))...)
	le.PutUint32(dst[at+8:], crc32.Checksum(dst[at+12:], castagnoli))
	return dst
}

// parse reads the slot p. It returns false if the slot was never written, is damaged, or belongs to
// a newer version.
func (c *cursorState) parse(p []byte) bool {
	if string(p[:8]) != cursorMagic || crc32.Checksum(p[12:cursorSlotBytes], castagnoli) != le.Uint32(p[8:]) ||
		le.Uint32(p[12:]) != cursorVersion {
		return false
	}
	*c = cursorState{
		gen:     le.Uint64(p[16:]),
		acked:   mark{seq: le.Uint64(p[24:]), rec: le.Uint64(p[32:])},
		segment: le.Uint64(p[40:]),
		end:     mark{seq: le.Uint64(p[48:]), rec: le.Uint64(p[56:])},
	}
	return c.acked.seq >= 1 && c.acked.valid() && c.end.valid() && c.segment <= maxNumber
}

// startOfSpool is the state of a new spool.
var startOfSpool = cursorState{acked: mark{seq: 1}}

// cursor is the open cursor file. It is written on each Ack, and synced by Spool.Sync. Spool.mu
// guards it.
type cursor struct {
	f       vfs.File
	state   cursorState
	settled []settledTickets // tickets of the records that were acknowledged last, the oldest first
	buf     []byte           // reused by write
	runs    []layout.Tickets // reused by noteSettled
}

// read reads the newer valid slot, and the settled tickets (numbers of acknowledged records) of
// both slots. If no slot is valid, it sets the state to startOfSpool, so that batches are delivered
// again rather than lost. blank reports whether no slot was ever written, which is not damage.
func (c *cursor) read() (blank bool, err error) {
	var slots [2][cursorSlotBytes + settledHeadBytes + maxSettled*settledEntryBytes]byte
	c.state, blank = startOfSpool, true
	for i := range slots {
		p := slots[i][:]
		n, err := c.f.ReadAt(p, int64(i)*cursorStride)
		if err != nil && err != io.EOF {
			return false, err
		}
		var s cursorState
		if n >= cursorSlotBytes && s.parse(p[:cursorSlotBytes]) && s.gen > c.state.gen {
			c.state = s
		}
		blank = blank && allZero(p[:cursorSlotBytes])
	}
	// Read the ticket ranges of the older slot first, because c.settled is sorted from old to new.
	// They are valid, too. Cursor files of earlier versions contain no ranges.
	for _, slot := range [...]uint64{c.state.gen + 1, c.state.gen} {
		c.parseSettled(slots[slot%2][cursorSlotBytes:])
	}
	return blank, nil
}

// write stores the state next, with the next generation, and the settled tickets. When it returns
// nil, both survive the death of the process.
func (c *cursor) write(next cursorState) error {
	next.gen = c.state.gen + 1
	c.buf = c.appendSettled(next.append(c.buf[:0]))
	if _, err := c.f.WriteAt(c.buf, int64(next.gen%2)*cursorStride); err != nil {
		return err // the slot not written still has the previous state
	}
	c.state = next
	return nil
}

// reserve writes both slots of a new file, so that later writes need no space on a full disk.
func (c *cursor) reserve(now cursorState) error {
	for range 2 {
		if err := c.write(now); err != nil {
			return err
		}
	}
	return nil
}

// noteEnd stores the end of the last segment for the next Open. If the write fails, the next Open
// does not detect missing batches at the end; no batch is lost, so the error is ignored.
func (c *cursor) noteEnd(now cursorState) {
	if now.end != c.state.end || now.acked != c.state.acked {
		_ = c.write(now)
	}
}

// restore creates the cursor file again after it was deleted, and stores the state and the ranges
// of settled tickets in it.
func (c *cursor) restore(d *directory, now cursorState) error {
	f, err := d.open(cursorName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("spool: cannot open the cursor: %w", err)
	}
	_ = c.f.Close() // the old handle belongs to a deleted file
	c.f = f
	if err := c.reserve(now); err != nil {
		return fmt.Errorf("spool: cannot write the cursor: %w", err)
	}
	return nil
}

// close closes the file. It does nothing if the file was never opened.
func (c *cursor) close() error {
	if c.f == nil {
		return nil
	}
	return c.f.Close()
}

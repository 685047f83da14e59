package crashfile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/plural"
)

// parseBigTable reads the list of oversize records in the state page. Each of them must have a
// frame in the companion file, so recovery can detect missing frames. maxUnlisted is the highest
// valid number of frames that did not fit into the list.
func (im *Image) parseBigTable(state []byte, maxUnlisted uint64) {
	le := binary.LittleEndian
	im.bigMore, _ = im.read(le.Uint64(state[StateBigMore:]), maxUnlisted)
	for at := StateBig; at < Page; at += 8 {
		if t, _ := im.read(le.Uint64(state[at:]), ^uint64(0)); t > im.Acked {
			im.bigWant[t] = true
		}
	}
}

// frameLen returns the length of the valid frame at the start of d, or 0 if there is none.
func frameLen(d []byte) int {
	if len(d) < BigHeadLen {
		return 0
	}
	size := uint64(binary.LittleEndian.Uint32(d[4:]))
	if size > uint64(len(d)-BigHeadLen) || crc32.Checksum(d[4:BigHeadLen+size], Castagnoli) != binary.LittleEndian.Uint32(d) {
		return 0
	}
	return BigHeadLen + int(size)
}

// parseBig reads the oversize records. To skip a damaged frame, it uses the length in the frame's
// header, if a valid frame begins there. Otherwise it searches for the next frame of an expected
// record.
func (im *Image) parseBig(d []byte) {
	budget := 8 * len(d) // bytes to examine while searching for frames
	for len(d) > 0 {
		if n := frameLen(d); n > 0 {
			im.addFrame(d[:n])
			d = d[n:]
			continue
		}
		next := im.resync(d, &budget)
		if next == 0 {
			return
		}
		d = d[next:]
	}
}

// addFrame adds the record of the frame d. If d is a tombstone, addFrame marks the record as
// evicted.
func (im *Image) addFrame(d []byte) {
	le := binary.LittleEndian
	meta := batch.Meta{Time: int64(le.Uint64(d[16:])), Stream: le.Uint32(d[24:]), Level: slog.Level(int8(d[28]))}
	switch t := le.Uint64(d[8:]); {
	case t <= im.Acked:
	case d[29]&FlagEvicted != 0:
		im.evictedBig[t] = true
	default:
		if im.bigWant[t] {
			delete(im.bigWant, t)
		} else if im.bigMore > 0 {
			im.bigMore--
			im.unnamed = append(im.unnamed, t)
		}
		im.Records = append(im.Records, batch.Record{Data: d[BigHeadLen:len(d):len(d)], Ticket: t, Meta: meta})
	}
}

// resync returns the offset of the next valid frame after a damaged frame at the start of d, or 0
// if there is none. Only frames of expected records count, because a payload may look like a frame.
func (im *Image) resync(d []byte, budget *int) int {
	due := func(at int, tombstone bool) bool {
		h := d[at:]
		if len(h) < BigHeadLen || h[29]&^FlagEvicted != 0 || h[30]|h[31] != 0 || binary.LittleEndian.Uint64(h[32:]) != 0 {
			return false
		}
		if h[29] == 0 && !im.bigWant[binary.LittleEndian.Uint64(h[8:])] {
			return false
		}
		if h[29] != 0 && !tombstone {
			return false
		}
		size := uint64(binary.LittleEndian.Uint32(h[4:]))
		if size > uint64(len(h)-BigHeadLen) || int(size) > *budget {
			return false
		}
		*budget -= int(size) + BigHeadLen
		return frameLen(h) > 0
	}
	if len(d) < BigHeadLen {
		return 0
	}
	if next := BigHeadLen + uint64(binary.LittleEndian.Uint32(d[4:])); next < uint64(len(d)) && due(int(next), true) {
		return int(next)
	}
	if len(im.bigWant) == 0 {
		return 0
	}
	for at := 1; at+BigHeadLen <= len(d); at++ {
		if due(at, false) {
			return at
		}
	}
	return 0
}

// finishBig counts the records whose frames are missing or damaged.
func (im *Image) finishBig() {
	for t := range im.bigWant {
		if !im.evictedBig[t] {
			im.DamagedBig++
		}
	}
	im.DamagedBig += im.bigMore
	im.Damaged += im.DamagedBig
	im.bigWant, im.bigMore = nil, 0
}

// Damage returns a description of the parts of the file that were unreadable in this recovery or an
// earlier one. It is empty if there are none.
func (im *Image) Damage() string {
	var parts []string
	add := func(n uint64, format string, args ...any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(uint64(im.DamagedSlabs), "%s in %s", plural.Of(im.Damaged-im.DamagedBig-im.Zeroed, "record"), plural.Of(uint64(im.DamagedSlabs), "slab"))
	add(im.DamagedBig, "%s larger than a slab", plural.Of(im.DamagedBig, "record"))
	add(im.Zeroed, "%s in pages that never reached the disk", plural.Of(im.Zeroed, "record"))
	add(im.Undefined, "%s of streams that are not defined", plural.Of(im.Undefined, "record"))
	add(uint64(im.DamagedState), "%s of its state", plural.Of(uint64(im.DamagedState), "word"))
	add(im.DamagedBefore, "%s that an earlier recovery could not read", plural.Of(im.DamagedBefore, "record"))
	if len(parts) == 0 {
		add(im.damagedMark, "%s that an earlier recovery could not read", plural.Of(im.damagedMark, "record"))
	}
	return strings.Join(parts, ", ")
}

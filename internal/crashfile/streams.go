package crashfile

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// parseDict reads the stream definitions in the mapped file. known reports whether n is their
// length in bytes. If the length is not known, parseDict reads everything that looks like an entry,
// up to the zeros at the end. Surplus entries are harmless, because no record refers to them.
func (im *Image) parseDict(d []byte, n uint64, known bool) {
	if known {
		d = d[:n]
	}
	for len(d) >= 8 {
		if !known && isZero(d) {
			if !im.defines(0) {
				im.define(0, 0, nil)
			}
			return
		}
		id, size := binary.LittleEndian.Uint32(d), binary.LittleEndian.Uint32(d[4:])
		if d = d[8:]; !im.define(id, size, d) {
			return
		}
		if size != NoDefinition {
			d = d[size:]
		}
	}
}

// parseStreams reads the stream definitions in the companion file, up to the first one that is
// torn.
func (im *Image) parseStreams(d []byte) {
	le := binary.LittleEndian
	for len(d) >= StreamHeadLen {
		id, size := le.Uint32(d[4:]), le.Uint32(d[8:])
		n := uint64(StreamHeadLen)
		if size != NoDefinition {
			n += uint64(size)
		}
		if n > uint64(len(d)) || crc32.Checksum(d[4:n], Castagnoli) != le.Uint32(d) || !im.define(id, size, d[StreamHeadLen:n]) {
			return
		}
		d = d[n:]
	}
}

// define adds the definition of a stream. It returns false if d is shorter than size.
func (im *Image) define(id, size uint32, d []byte) bool {
	if size == NoDefinition {
		im.plain = append(im.plain, id)
		return true
	}
	if uint64(size) > uint64(len(d)) {
		return false
	}
	im.Streams[id] = d[:size:size]
	return true
}

// Defined reports whether the file has an entry for stream id, including an entry without a
// definition. It is always true for files of destinations without streams.
func (im *Image) Defined(id uint32) bool { return !im.streams || im.defines(id) }

// defines reports whether the dictionary has an entry for stream id.
func (im *Image) defines(id uint32) bool {
	_, ok := im.Streams[id]
	return ok || slices.Contains(im.plain, id)
}

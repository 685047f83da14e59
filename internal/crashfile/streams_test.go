package crashfile

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// appendStream appends an entry with a correct checksum to the contents of a companion file of
// streams.
func appendStream(dst []byte, id, size uint32, def []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, id)
	dst = binary.LittleEndian.AppendUint32(dst, size)
	dst = append(dst, def...)
	binary.LittleEndian.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], Castagnoli))
	return dst
}

// No content of the file of streams causes a panic, even if an int has 32 bits. Only definitions
// with a valid checksum are read.
func FuzzStreams(f *testing.F) {
	f.Add([]byte{}, uint32(1), uint32(3))
	f.Add(appendStream(nil, 7, 3, []byte("abc")), uint32(8), uint32(0))
	f.Add(appendStream(nil, 0, NoDefinition, nil), uint32(9), uint32(1<<31))
	f.Add([]byte("abc"), uint32(9), uint32(1<<32-2))
	f.Add([]byte("abc"), uint32(9), uint32(1<<32-11))
	f.Fuzz(func(t *testing.T, data []byte, id, size uint32) {
		for _, d := range [][]byte{data, appendStream(nil, id, size, data), append(appendStream(nil, id, 3, []byte("def")), data...)} {
			im := Image{Streams: map[uint32][]byte{}}
			im.parseStreams(d)
			for id, def := range im.Streams {
				if !bytes.Contains(d, appendStream(nil, id, uint32(len(def)), def)) {
					t.Fatalf("stream %d is %q, which %x does not say", id, def, d)
				}
			}
		}
	})
}

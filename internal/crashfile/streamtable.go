package crashfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/mapped"
)

// A streamTable holds the definitions of the stream numbers of the records: the first 64 KiB in the
// mapped file, and the others in a companion file.
type streamTable struct {
	dict  batch.Dictionary // nil if the streams have no definitions
	known map[uint32]bool  // streams whose definitions are written or cannot be written
	zero  bool             // known contains stream 0
	size  int              // bytes of the dictionary in the mapped file
	path  string           // path of the companion file
	f     *os.File         // nil if the companion file does not exist
	n     int64            // size of the companion file in bytes
}

// KnowsStream reports whether a record of stream id can be stored without defining the stream
// first.
func (m *Memory) KnowsStream(id uint32) bool {
	t := &m.streams
	return t.dict == nil || id == 0 && t.zero || t.known[id]
}

// DefineStream asks the dictionary for the definition of a stream. The dictionary is user code, so
// the caller must not hold the lock of the Memory.
func (m *Memory) DefineStream(id uint32) (def []byte, ok bool, err error) {
	err = contain.Call(func() { def, ok = m.streams.dict.AppendStream(nil, id) })
	if err != nil {
		err = fmt.Errorf("AppendStream of the dictionary failed: %w", err)
	}
	return def, ok, err
}

// KnowStream makes KnowsStream return true for a stream. It is called when the definition is
// written, or cannot be written.
func (m *Memory) KnowStream(id uint32) {
	m.streams.known[id] = true
	m.streams.zero = m.streams.zero || id == 0
}

// AddStream writes the definition of a stream, before the first record that uses it. An entry in
// the mapped file consists of number, length and definition. It becomes valid when the word DictLen
// is stored.
func (m *Memory) AddStream(id uint32, def []byte, ok bool) error {
	size := uint32(len(def))
	switch {
	case !ok && id == 0:
		def, size = nil, NoDefinition
	case !ok:
		return errors.New("the destination does not define the stream")
	}
	at := m.streams.size
	if at+8+len(def) > DictLen {
		return m.streams.append(id, size, def)
	}
	d := m.mem[DictOff+at:]
	binary.LittleEndian.PutUint32(d, id)
	binary.LittleEndian.PutUint32(d[4:], size)
	copy(d[8:], def)
	m.streams.size = at + 8 + len(def)
	StoreWord(&m.state.DictLen, uint64(m.streams.size))
	return nil
}

// append writes an entry to the companion file. It makes a system call while the caller's lock is
// held, once per stream.
func (t *streamTable) append(id, size uint32, def []byte) error {
	if t.n+StreamHeadLen+int64(len(def)) > MaxStreamBytes {
		return fmt.Errorf("%s is full", t.path)
	}
	if t.f == nil {
		f, err := mapped.OpenRegular(t.path, os.O_CREATE|os.O_EXCL|os.O_RDWR)
		if err != nil {
			return err
		}
		t.f = f
	}
	e := make([]byte, 4, StreamHeadLen+len(def))
	e = binary.LittleEndian.AppendUint32(e, id)
	e = binary.LittleEndian.AppendUint32(e, size)
	e = append(e, def...)
	binary.LittleEndian.PutUint32(e, crc32.Checksum(e[4:], Castagnoli))
	if _, err := t.f.WriteAt(e, t.n); err != nil {
		return err // the next entry overwrites the incomplete one
	}
	t.n += int64(len(e))
	return nil
}

// close closes the companion file, if it is open.
func (t *streamTable) close() {
	if t.f != nil {
		t.f.Close()
		t.f = nil
	}
}

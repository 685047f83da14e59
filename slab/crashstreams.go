package slab

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/mapped"
)

// A streamTable says what the stream numbers of the records stand for: 64 KiB in
// the mapped file, and what does not fit there in a file beside it. All of it is
// guarded by Writer.mu.
type streamTable struct {
	dict  batch.Dictionary // nil: the sink knows no streams
	known map[uint32]bool  // streams that need not be looked at again
	zero  bool             // stream 0 is one of them
	size  int              // bytes of the dictionary in the mapped file
	path  string
	f     *os.File
	n     int64
}

// isKnown reports whether a record of stream id can be stored as it is.
func (t *streamTable) isKnown(id uint32) bool {
	return t.dict == nil || id == 0 && t.zero || t.known[id]
}

// learnStream writes the definition of a stream before the first record that uses it.
// The caller of a write does that, who does not hold mu while the dictionary is asked.
// A definition that cannot be had or written is reported: recovery leaves the records of
// that stream out.
func (w *Writer) learnStream(id uint32) {
	c := w.crash
	var def []byte
	ok := false
	err := contain.Call(func() { def, ok = c.dict.AppendStream(nil, id) })
	if err != nil {
		err = fmt.Errorf("AppendStream of the dictionary: %w", err)
	}
	w.mu.Lock()
	defer w.unlock()
	if c.isKnown(id) { // somebody else was first
		return
	}
	c.known[id] = true
	c.zero = c.zero || id == 0
	w.guardLocked(func() {
		if err == nil {
			err = c.addStream(id, def, ok)
		}
	})
	if err != nil {
		w.events.Post(batch.Event{Output: w.o.Name, Op: "crash-safe", Err: fmt.Errorf(
			"slab: cannot keep what stream %d stands for: what is left of it when this process dies will be set aside: %w", id, err)})
	}
}

// addStream writes an entry. Those in the mapped file are id, length, bytes; the
// length word of the state publishes them.
func (c *crashFile) addStream(id uint32, def []byte, ok bool) error {
	size := uint32(len(def))
	switch {
	case !ok && id == 0:
		def, size = nil, crashfile.NoDefinition
	case !ok:
		return fmt.Errorf("the destination does not know it")
	}
	at := c.streamTable.size
	if at+8+len(def) > crashfile.DictLen {
		return c.streamTable.append(id, size, def)
	}
	d := c.mem[crashfile.DictOff+at:]
	binary.LittleEndian.PutUint32(d, id)
	binary.LittleEndian.PutUint32(d[4:], size)
	copy(d[8:], def)
	c.streamTable.size = at + 8 + len(def)
	crashfile.StoreWord(&c.state.DictLen, uint64(c.streamTable.size))
	return nil
}

// append writes an entry to the file beside. It is a system call with mu held, once
// per stream.
func (t *streamTable) append(id, size uint32, def []byte) error {
	if t.n+crashfile.StreamHeadLen+int64(len(def)) > crashfile.MaxStreamBytes {
		return fmt.Errorf("%s is full", t.path)
	}
	if t.f == nil {
		f, err := mapped.OpenRegular(t.path, os.O_CREATE|os.O_EXCL|os.O_RDWR)
		if err != nil {
			return err
		}
		t.f = f
	}
	e := make([]byte, 4, crashfile.StreamHeadLen+len(def))
	e = binary.LittleEndian.AppendUint32(e, id)
	e = binary.LittleEndian.AppendUint32(e, size)
	e = append(e, def...)
	binary.LittleEndian.PutUint32(e, crc32.Checksum(e[4:], crashfile.Castagnoli))
	if _, err := t.f.WriteAt(e, t.n); err != nil {
		return err // the next entry is written over what is there of it
	}
	t.n += int64(len(e))
	return nil
}

func (t *streamTable) close() {
	if t.f != nil {
		t.f.Close()
		t.f = nil
	}
}

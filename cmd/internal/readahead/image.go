package readahead

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime/debug"
	"unsafe"

	"github.com/forebay-log/forebay/internal/mapped"
)

// An image is a file of this package in mapped memory. If broken is set, the file stores no more
// input.
type image struct {
	path  string
	file  *os.File // holds the lock
	mem   []byte   // the whole file
	state []byte   // part of mem
	ring  []byte   // part of mem

	broken   error       // reason why the file stores no more input, or nil
	onBroken func(error) // called when broken is set; may be nil
}

// An identity is the part of a file that is written when the file is created and does not change.
type identity struct {
	head    int // size of the identity, a multiple of the page size
	ring    int // size of the ring
	origin  origin
	outputs []string
}

// word returns the address of the 64-bit word at offset off of the state.
func (m *image) word(off int) *uint64 { return (*uint64)(unsafe.Pointer(&m.state[off])) }

// check sets broken if the file cannot store more input, because it was deleted or truncated, or
// because room, the number of free bytes, is 0.
func (m *image) check(room int) {
	st, err := m.file.Stat()
	switch {
	case err != nil:
		m.fail(err)
	case st.Size() < int64(len(m.mem)):
		m.fail(errors.New("it was truncated"))
	case mapped.Links(st) == 0:
		m.fail(errors.New("it was deleted"))
	case room == 0:
		m.fail(errors.New("it is full"))
	}
}

// fail sets broken and calls onBroken, unless broken is already set.
func (m *image) fail(err error) {
	if m.broken == nil {
		m.broken = fmt.Errorf("%s: %w", m.path, err)
		if m.onBroken != nil {
			m.onBroken(m.broken)
		}
	}
}

// recoverFault recovers from a memory fault in the mapped memory, which a truncation of the file causes,
// and sets broken. Other panics continue. Functions that access the mapped memory must defer recoverFault
// with the result of debug.SetPanicOnFault(true).
func (m *image) recoverFault(old bool) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	e, ok := r.(interface{ Addr() uintptr })
	start := uintptr(unsafe.Pointer(unsafe.SliceData(m.mem)))
	if !ok || e.Addr() < start || e.Addr() >= start+uintptr(len(m.mem)) {
		panic(r)
	}
	m.fail(errors.New("it was truncated"))
}

// release unmaps, unlocks and closes the file.
func (m *image) release() {
	mapped.Unlock(m.file)
	mapped.Unmap(m.mem)
	m.file.Close()
}

// readIdentity reads the identity of a file. It returns an error that wraps errDamaged if the
// identity is damaged or does not fit the size of the file.
func readIdentity(f *os.File) (id identity, err error) {
	bad := func(why string) (identity, error) { return identity{}, fmt.Errorf("%w: %s", errDamaged, why) }
	var fixed [identNames]byte
	if _, err := f.ReadAt(fixed[:], 0); err != nil || string(fixed[:len(magic)]) != magic {
		return bad("its header is invalid")
	}
	le := binary.LittleEndian
	if v := le.Uint32(fixed[identVersion:]); v != version {
		return id, fmt.Errorf("it has version %d, but this program reads version %d", v, version)
	}
	head := int(le.Uint32(fixed[identBytes:]))
	size := le.Uint64(fixed[identRing:])
	n := int(le.Uint32(fixed[identOutputs:]))
	st, err := f.Stat()
	if err != nil {
		return id, err
	}
	if head < page || head%page != 0 || size == 0 || size%page != 0 || size > maxBytes || n > maxOutputs || st.Size() != int64(head)+page+int64(size) {
		return bad("its sizes are inconsistent")
	}
	ident := make([]byte, head)
	if _, err := f.ReadAt(ident, 0); err != nil || crc32.Checksum(ident[identCRC+4:], castagnoli) != le.Uint32(ident[identCRC:]) {
		return bad("the checksum of its identity is wrong")
	}
	copy(id.origin[:], ident[identInput:])
	names := ident[identNames:]
	for range n {
		if len(names) < 2 || len(names) < 2+int(le.Uint16(names)) {
			return bad("a name is not terminated")
		}
		l := int(le.Uint16(names))
		id.outputs = append(id.outputs, string(names[2:2+l]))
		names = names[2+l:]
	}
	id.head, id.ring = head, int(size)
	return id, nil
}

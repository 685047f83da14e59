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

// An image is a read-ahead file that is mapped to memory. After broken was set, no more input is
// stored in the file.
type image struct {
	path  string
	file  *os.File // holds the lock of the file
	mem   []byte   // the whole file
	state []byte   // the page with the state, a part of mem
	ring  []byte   // the ring, a part of mem

	broken   error       // reason why no more input is stored, or nil
	onBroken func(error) // if not nil, called when broken is set
}

// An identity is the part of a file that does not change after the creation of the file.
type identity struct {
	head    int // size of the identity in the file, a multiple of the page size
	ring    int // size of the ring
	origin  origin
	outputs []string
}

// word returns the address of the 64-bit word at offset off in the state.
func (m *image) word(off int) *uint64 { return (*uint64)(unsafe.Pointer(&m.state[off])) }

// check sets broken if no more input can be stored: the file was deleted or truncated, or room is
// 0. room is the number of free bytes in the ring.
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

// fail sets broken to err and calls onBroken, unless broken is already set.
func (m *image) fail(err error) {
	if m.broken == nil {
		m.broken = fmt.Errorf("%s: %w", m.path, err)
		if m.onBroken != nil {
			m.onBroken(m.broken)
		}
	}
}

// recoverFault recovers from a memory fault, which a truncation of the file causes, and sets
// broken. It does not recover from other panics. Each function that accesses mapped memory must
// defer recoverFault. The parameter old is the result of debug.SetPanicOnFault(true).
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

// readIdentity reads the identity of a file. If it is damaged or does not fit the size of the file,
// the error wraps errDamaged.
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

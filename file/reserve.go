package file

import "math"

// A large file has up to reserveStep bytes of disk space reserved after its end. Appending to
// reserved space costs the kernel a third less (ADR 40). The size of the file does not include this
// space, so readers do not notice it. The space is released when the file is closed. After a crash,
// the next Open releases it.
const (
	reserveAfter = 8 << 20 // size of the file in bytes from which on space is reserved
	reserveStep  = 8 << 20 // maximum number of reserved bytes
	reserveAgain = 7 << 20 // number of bytes written until the next reservation
	// reserveSlack is the number of unused bytes after the end that need not be released. File
	// systems allocate whole blocks, so a few bytes are always unused.
	reserveSlack = 64 << 10
)

// admitLocked handles a file that was just opened. It releases space that a crashed process
// reserved after the end of the file, and determines whether to reserve space.
func (f *File) admitLocked() {
	f.reserved = math.MaxInt64
	if f.regular && !f.o.NoReserve && reservable(f.h) {
		f.reserved = reserveAfter
		release(f.h)
	}
}

// releaseReservedLocked returns a function that releases the space reserved after the end of the
// open file. The function must be called after all descriptors of the file are closed.
func (f *File) releaseReservedLocked() (then func()) {
	if f.reserved == math.MaxInt64 {
		return func() {}
	}
	return releaser(f.h)
}

// reserveLocked reserves space for the next data. The reservation is optional: errors are ignored,
// and reserveLocked is called again after reserveAgain bytes.
func (f *File) reserveLocked() {
	st, err := f.h.Stat()
	if err != nil {
		f.reserved = f.size + reserveAgain
		return
	}
	at := st.Size() // includes data of other writers
	if at < reserveAfter {
		f.reserved = f.size + reserveAfter - at // another process has truncated the file
		return
	}
	f.reserved = f.size + reserveAgain
	n := int64(reserveStep)
	if f.o.RotateBytes > 0 {
		n = min(n, f.o.RotateBytes-at)
	}
	if n > 0 {
		reserve(f.h, at, n)
	}
}

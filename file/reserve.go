package file

import "math"

// A large file has up to reserveStep bytes reserved on disk after its end. Appending to reserved
// space costs the kernel a third less (ADR 40). The size of the file does not include the reserved
// space, so readers do not see it. It is released when the file is closed, and by the next Open after
// a crash.
const (
	reserveAfter = 8 << 20  // size in bytes from which space is reserved
	reserveStep  = 8 << 20  // maximum of bytes after the end
	reserveAgain = 7 << 20  // bytes written until the next reservation
	reserveSlack = 64 << 10 // bytes after the end that are not worth a truncation
)

// admitLocked handles a file that was just opened: it releases space that a crashed process
// reserved after the end, and decides whether to reserve space.
func (f *File) admitLocked() {
	f.reserved = math.MaxInt64
	if f.regular && !f.o.NoReserve && reservable(f.h) {
		f.reserved = reserveAfter
		release(f.h)
	}
}

// releaseReservedLocked returns a function that releases the space reserved beyond the end of the open
// file. The caller calls the function after all our descriptors of the file are closed.
func (f *File) releaseReservedLocked() (then func()) {
	if f.reserved == math.MaxInt64 {
		return func() {}
	}
	return releaser(f.h)
}

// reserveLocked reserves space for the next data. The reservation is optional: after an error,
// the next attempt follows after reserveAgain bytes.
func (f *File) reserveLocked() {
	st, err := f.h.Stat()
	if err != nil {
		f.reserved = f.size + reserveAgain
		return
	}
	at := st.Size() // including data of other writers
	if at < reserveAfter {
		f.reserved = f.size + reserveAfter - at // another process truncated the file
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

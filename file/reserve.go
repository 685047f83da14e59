package file

import "math"

// A large file has up to reserveStep bytes of its disk reserved behind its end. Appending
// to space that is reserved takes the kernel a third less (ADR 40).
const (
	reserveAfter = 8 << 20  // size in bytes from which space is reserved
	reserveStep  = 8 << 20  // most bytes behind the end
	reserveAgain = 7 << 20  // bytes written until the next reservation
	reserveSlack = 64 << 10 // bytes behind the end that are not worth a truncation
)

// admitLocked begins with the file that was just opened: it releases what a process that
// died has reserved behind its end, and decides whether space will be reserved.
func (f *File) admitLocked() {
	f.reserved = math.MaxInt64
	if f.regular && !f.o.NoReserve && reservable(f.h) {
		f.reserved = reserveAfter
		release(f.h)
	}
}

// giveBackLocked returns what releases the space behind the end of the file that is open.
// It is called once that is closed, and whatever else of ours has it open.
func (f *File) giveBackLocked() (then func()) {
	if f.reserved == math.MaxInt64 {
		return func() {}
	}
	return releaser(f.h)
}

// reserveLocked reserves space for what is appended next. Nobody needs it: whatever goes
// wrong, the next attempt comes after reserveAgain bytes.
func (f *File) reserveLocked() {
	st, err := f.h.Stat()
	if err != nil {
		f.reserved = f.size + reserveAgain
		return
	}
	at := st.Size() // of all who append
	if at < reserveAfter {
		f.reserved = f.size + reserveAfter - at // somebody has truncated it
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

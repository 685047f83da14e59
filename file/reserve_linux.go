package file

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// fallocate is replaced by tests.
var fallocate = unix.Fallocate

// reservable reports whether reserving space after the end of h is useful, and whether we may
// release it: on ext4, for the owner of the file. XFS reserves space automatically, and Btrfs
// does not compress reserved space.
func reservable(h handle) (ok bool) {
	control(h, func(fd int) {
		var fs unix.Statfs_t
		var st unix.Stat_t
		ok = unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.EXT4_SUPER_MAGIC &&
			unix.Fstat(fd, &st) == nil && int(st.Uid) == os.Geteuid()
	})
	return ok
}

// reserve reserves n bytes after the end of h, unless the system refuses. The size of the file
// does not change.
func reserve(h handle, end, n int64) {
	control(h, func(fd int) { _ = fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, end, n) })
}

// release releases the reserved space after the end of h, unless another process has the file
// open.
//
// There is no system call to truncate at the end: ftruncate requires a size, and removes data
// appended by others since the size was read. Punching a hole requires an offset, and ext4
// punches no holes after the end. Therefore release holds a write lease during the truncation.
// The kernel grants one only if the file is not open elsewhere, and blocks an open of the file
// until the lease is returned.
func release(h handle) {
	control(h, func(fd int) {
		if _, ok := surplus(fd); !ok {
			return
		}
		// A waiting process is announced by a signal. The default is SIGIO, which ends a
		// process that does not handle it. SIGURG is ignored.
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(unix.SIGURG))
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
		}
		if err != nil {
			return
		}
		if st, ok := surplus(fd); ok && unix.Ftruncate(fd, st.Size) == nil {
			// Nothing was written: rotation and log shippers use this time.
			_ = unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd),
				[]unix.Timespec{{Nsec: unix.UTIME_OMIT}, st.Mtim}, 0)
		}
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	})
}

// surplus reports whether there is space after the end of fd that a File may have reserved. A
// larger amount was reserved by another program.
func surplus(fd int) (st unix.Stat_t, ok bool) {
	if unix.Fstat(fd, &st) != nil || st.Size < reserveAfter {
		return st, false
	}
	surplus := st.Blocks*512 - st.Size
	return st, surplus > reserveSlack && surplus <= reserveStep+reserveSlack
}

// releaser returns a function that releases the space after the end of h once h is closed.
func releaser(h handle) (then func()) {
	then = func() {}
	control(h, func(fd int) {
		if _, ok := surplus(fd); !ok {
			return
		}
		if spare, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			f := os.NewFile(uintptr(spare), "")
			then = func() {
				release(f)
				f.Close()
			}
		}
	})
	return then
}

// control calls do with the descriptor of h, which is not closed during the call. It calls nothing if h
// has none, as in tests.
func control(h handle, do func(fd int)) {
	if f, ok := h.(syscall.Conn); ok {
		if c, err := f.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { do(int(fd)) })
		}
	}
}

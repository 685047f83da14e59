package file

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// fallocate is fallocate(2). Tests replace it.
var fallocate = unix.Fallocate

// reservable reports whether reserving space after the end of h is useful, and whether this process
// can release the space. Both are true on ext4 if the process owns the file. XFS reserves space
// itself, and Btrfs does not compress reserved space.
func reservable(h handle) (ok bool) {
	control(h, func(fd int) {
		var fs unix.Statfs_t
		var st unix.Stat_t
		ok = unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.EXT4_SUPER_MAGIC &&
			unix.Fstat(fd, &st) == nil && int(st.Uid) == os.Geteuid()
	})
	return ok
}

// reserve reserves n bytes from offset end on. It does not change the size of the file. Errors are
// ignored.
func reserve(h handle, end, n int64) {
	control(h, func(fd int) { _ = fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, end, n) })
}

// release releases the reserved space after the end of h, unless another process has the file open.
//
// No system call releases only this space. ftruncate requires a size, and would remove data that
// others have appended since the size was read. Punching a hole requires an offset, and ext4
// punches no holes after the end. Therefore release holds a write lease during the truncation. The
// kernel grants the lease only if no other process has the file open, and delays an open until the
// lease is returned.
func release(h handle) {
	control(h, func(fd int) {
		if _, ok := surplus(fd); !ok {
			return
		}
		// The kernel sends a signal if a process waits for the lease. The default is SIGIO, which
		// ends a process without a handler for it. SIGURG is ignored by default.
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(unix.SIGURG))
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
		}
		if err != nil {
			return
		}
		if st, ok := surplus(fd); ok && unix.Ftruncate(fd, st.Size) == nil {
			// Restore the modification time, because rotation and log shippers use it, and no data
			// was written.
			_ = unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd),
				[]unix.Timespec{{Nsec: unix.UTIME_OMIT}, st.Mtim}, 0)
		}
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	})
}

// surplus reports whether there is space after the end of fd that a File may have reserved. If
// there is more than a File reserves, another program has reserved it, and surplus returns false.
func surplus(fd int) (st unix.Stat_t, ok bool) {
	if unix.Fstat(fd, &st) != nil || st.Size < reserveAfter {
		return st, false
	}
	surplus := st.Blocks*512 - st.Size
	return st, surplus > reserveSlack && surplus <= reserveStep+reserveSlack
}

// releaser returns a function that releases the space after the end of h. The returned function
// must be called after h is closed.
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

// control calls the function do with the descriptor of h, which is not closed during the call. If h
// has no descriptor, as in tests, do is not called.
func control(h handle, do func(fd int)) {
	if f, ok := h.(syscall.Conn); ok {
		if c, err := f.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { do(int(fd)) })
		}
	}
}

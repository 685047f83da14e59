package file

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// fallocate is replaced by tests.
var fallocate = unix.Fallocate

// reservable reports whether space behind the end of h is worth reserving, and ours to
// release: on ext4, for the owner of the file. XFS reserves by itself, and Btrfs does
// not compress what was reserved.
func reservable(h handle) (ok bool) {
	control(h, func(fd int) {
		var fs unix.Statfs_t
		var st unix.Stat_t
		ok = unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.EXT4_SUPER_MAGIC &&
			unix.Fstat(fd, &st) == nil && int(st.Uid) == os.Geteuid()
	})
	return ok
}

// reserve reserves n bytes from the end of h on, unless the system refuses. The size of the
// file stays.
func reserve(h handle, end, n int64) {
	control(h, func(fd int) { _ = fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, end, n) })
}

// release gives back what is reserved behind the end of h, unless somebody else has the
// file open.
//
// No call says "truncate at the end": ftruncate takes a size, and cuts what others have
// appended since that was read. Punching a hole takes an offset, too, and ext4 punches none
// behind the end. So release has a write lease meanwhile. The kernel grants one only if the
// file is open nowhere else, and has whoever opens it wait until the lease is returned.
func release(h handle) {
	control(h, func(fd int) {
		if _, ok := surplus(fd); !ok {
			return
		}
		// Who waits is announced by a signal: SIGIO, which ends a process that does not
		// handle it, unless another is chosen. SIGURG is ignored.
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(unix.SIGURG))
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
		}
		if err != nil {
			return
		}
		if st, ok := surplus(fd); ok && unix.Ftruncate(fd, st.Size) == nil {
			// Nothing was written: rotation and shippers go by this time.
			_ = unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd),
				[]unix.Timespec{{Nsec: unix.UTIME_OMIT}, st.Mtim}, 0)
		}
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	})
}

// surplus reports whether there is space behind the end of fd that a File may have
// reserved: more than that is somebody's own.
func surplus(fd int) (st unix.Stat_t, ok bool) {
	if unix.Fstat(fd, &st) != nil || st.Size < reserveAfter {
		return st, false
	}
	behind := st.Blocks*512 - st.Size
	return st, behind > reserveSlack && behind <= reserveStep+reserveSlack
}

// releaser returns what releases the space behind the end of h, for when h is closed.
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

func control(h handle, do func(fd int)) {
	if f, ok := h.(syscall.Conn); ok {
		if c, err := f.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { do(int(fd)) })
		}
	}
}

package mapped

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// allocate reserves every block of the file and writes zeros, so that a store into the mapping
// cannot fail because the disk is full.
func allocate(f *os.File, size int64) error {
	st := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: size}
	if err := unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &st); err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

func populate([]byte) {}

func refuseNetworkFS(f *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return fmt.Errorf("the directory is on a network file system, which cannot keep mapped pages of a dead process: choose a local one")
	}
	return nil
}

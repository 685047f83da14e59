package mapped

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// allocate reserves every block of the file, so that a store into the mapping cannot fail because
// the disk is full.
func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		if err != unix.EINTR {
			return err
		}
	}
}

// populate causes all page faults of the mapping now, so that later writes cause none. Kernels
// before 5.14 do not support this, so there the first writes are slower.
func populate(mem []byte) { _ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE) }

// NetworkFS maps the statfs(2) magic numbers of network file systems to their names. On these,
// locks and mapped pages do not work as on a local disk. Tests add entries.
var NetworkFS = map[int64]string{0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2"}

func refuseNetworkFS(f *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	if name, bad := NetworkFS[int64(st.Type)]; bad {
		return fmt.Errorf("the directory is on %s, which cannot keep mapped pages of a dead process: choose a local one", name)
	}
	return nil
}

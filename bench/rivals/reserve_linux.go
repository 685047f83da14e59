package rivals

import (
	"fmt"
	"os"
	"syscall"
)

// reserve reserves disk space for the first n bytes of f. The size of the file remains 0.
func reserve(f *os.File, n int64) error {
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE
	if err := syscall.Fallocate(int(f.Fd()), keepSize, 0, n); err != nil {
		return fmt.Errorf("cannot reserve %d bytes: %w", n, err)
	}
	return nil
}

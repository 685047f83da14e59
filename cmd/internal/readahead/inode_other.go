//go:build !unix

package readahead

import "os"

// inode returns false, because inodes are available on Unix only.
func inode(os.FileInfo) (dev, ino uint64, ok bool) { return 0, 0, false }

//go:build !unix

package readahead

import "os"

func inode(os.FileInfo) (dev, ino uint64, ok bool) { return 0, 0, false }

//go:build !unix

package tail

import (
	"hash/fnv"
	"io/fs"
)

// idOf derives an id from the path, because inodes are available on Unix only. Rotation is
// therefore detected by checksums only.
func idOf(path string, _ fs.FileInfo) id {
	h := fnv.New64a()
	h.Write([]byte(path))
	return id{1, h.Sum64()}
}

// isDeleted returns false, because the number of links of a file is available on Unix only.
func isDeleted(fs.FileInfo) bool { return false }

// descriptors returns an assumed limit of open files of this process.
func descriptors() int { return 4096 }

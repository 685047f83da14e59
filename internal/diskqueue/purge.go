package diskqueue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forebay-log/forebay/internal/vfs"
)

// Purge deletes all segments in the spool directory dir. If onlyAside is true, it deletes only
// damaged files that were set aside. It returns the numbers of deleted files and bytes. If a
// process has the spool open, the error wraps [spool.ErrLocked].
func Purge(dir string, onlyAside bool) (files int, bytes int64, err error) {
	return purge(vfs.OS, dir, onlyAside)
}

// purge is Purge with the file system as a parameter. It holds the lock, so no process opens the
// spool meanwhile.
func purge(fsys vfs.FS, dir string, onlyAside bool) (files int, bytes int64, err error) {
	lock, err := lockDir(fsys, dir)
	if err != nil {
		return 0, 0, fmt.Errorf("spool: cannot purge %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return 0, 0, fmt.Errorf("spool: cannot purge %s: %w", dir, err)
	}
	for _, name := range names {
		// The lock file and the cursor file are kept, so that numbers are not used again.
		if g, ok := segmentFile(name); !ok || onlyAside && g.status != aside {
			continue
		}
		path := filepath.Join(dir, name)
		size, err := fsys.Size(path)
		if err == nil {
			err = fsys.Remove(path)
		}
		if isNotExist(err) {
			continue
		}
		if err != nil {
			return files, bytes, fmt.Errorf("spool: cannot purge: %w", err)
		}
		files++
		bytes += size
	}
	if !onlyAside {
		forgetEnd(fsys, filepath.Join(dir, cursorName))
	}
	return files, bytes, nil
}

// forgetEnd removes the end of the spool from the cursor, so that the next Open does not report the
// purged batches as missing. If the cursor cannot be read or written, it stays unchanged, and Open
// does report them. Segment numbers are not used again.
func forgetEnd(fsys vfs.FS, name string) {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	c := cursor{f: f}
	if _, err := c.read(); err == nil && c.state.gen > 0 {
		_ = c.write(cursorState{acked: c.state.acked, segment: c.state.segment})
	}
}

package crashfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forebay-log/forebay/internal/mapped"
)

// A File is a crash-safe file in a directory. Other tools may inspect it while its process
// is running.
type File struct {
	Path  string
	Bytes int64 // including oversize records in the companion file
	Alive bool  // a process holds its lock and owns the file; not determined if Incomplete
	Aside bool  // damaged, and renamed by an earlier process
	// Incomplete files are incomplete: a process is creating them, or died while doing so. They
	// contain no records.
	Incomplete bool
}

// IsName reports whether name is the name of a crash-safe file, of one that was set aside,
// or of an unfinished one. Companion files do not count.
func IsName(name string) bool {
	for _, suffix := range []string{NewSuffix, BadSuffix} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.HasSuffix(name, Suffix)
}

// List lists the crash-safe files in dir, oldest first. It changes nothing but acquires
// each lock briefly.
func List(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir) // sorted by name, which begins with the creation time
	if err != nil {
		return nil, fmt.Errorf("slab: cannot list crash-safe files: %w", err)
	}
	var files []File
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !IsName(name) {
			continue
		}
		st, err := e.Info()
		if err != nil { // removed in the meantime
			continue
		}
		f := File{
			Path: filepath.Join(dir, name), Bytes: st.Size(),
			Aside: strings.HasSuffix(name, BadSuffix), Incomplete: strings.HasSuffix(name, NewSuffix),
		}
		for _, suffix := range []string{BigSuffix, StreamSuffix} {
			if st, err := os.Lstat(f.Path + suffix); err == nil {
				f.Bytes += st.Size()
			}
		}
		f.Alive = !f.Incomplete && inUse(f.Path) // its creator must not find it locked
		files = append(files, f)
	}
	return files, nil
}

// inUse reports whether a process holds the lock of a file.
func inUse(path string) bool {
	f, err := mapped.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	err = mapped.Lock(f)
	if err == nil {
		mapped.Unlock(f)
	}
	return mapped.IsLocked(err)
}

// ReadLive is [Read] for the file of a running process: it reads the file twice and omits
// everything that changed in between, so that no record is torn.
func ReadLive(path string) (*Image, error) {
	before, err := Read(path)
	if err != nil {
		return nil, err
	}
	im, err := Read(path)
	if err != nil {
		return nil, err
	}
	old, k := before.Records, 0
	kept := im.Records[:0]
	for _, r := range im.Records {
		for k < len(old) && old[k].Ticket < r.Ticket {
			k++
		}
		if k < len(old) && old[k].Ticket == r.Ticket && bytes.Equal(old[k].Data, r.Data) {
			kept = append(kept, r)
		}
	}
	im.Records = kept
	// A record settled between the two reads looks lost.
	im.Damaged -= im.DamagedBig
	im.DamagedBig, im.DamagedState = 0, 0
	return im, nil
}

// Remove deletes a crash-safe file and its companion files. The main file is deleted last:
// if the process is killed before that, the file remains with all its records settled.
func Remove(path string) {
	Point(PointUnlink)
	os.Remove(path + BigSuffix + NewSuffix)
	os.Remove(path + BigSuffix)
	os.Remove(path + StreamSuffix)
	Point(PointUnlinkBetween)
	os.Remove(path)
	Point(PointUnlinked)
}

package crashfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forebay-log/forebay/internal/mapped"
)

// A File describes a crash-safe file in a directory. Other programs may inspect the file while its
// process is running.
type File struct {
	Path  string
	Bytes int64 // size, including the companion file of oversize records
	Alive bool  // a process holds the lock, so the file is in use; not determined if Incomplete
	Aside bool  // an earlier process renamed the file because it is damaged
	// Incomplete reports whether a process is creating the file, or died while creating it. An
	// incomplete file contains no records.
	Incomplete bool
}

// IsName reports whether name is the name of a crash-safe file, including damaged and incomplete
// ones. It is not for companion files.
func IsName(name string) bool {
	for _, suffix := range []string{NewSuffix, BadSuffix} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.HasSuffix(name, Suffix)
}

// List returns the crash-safe files in dir, oldest first. It changes nothing, but acquires the lock
// of each file briefly.
func List(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir) // sorted by name; names begin with the time of creation
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
		f.Alive = !f.Incomplete && inUse(f.Path) // the process that creates the file must not find it locked
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

// ReadLive is like [Read], for the file of a running process. It reads the file twice and omits
// data that changed between the two reads, so that no record is torn.
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
	// A missing frame is no damage here: its record may have been delivered between the two reads.
	im.Damaged -= im.DamagedBig
	im.DamagedBig, im.DamagedState = 0, 0
	return im, nil
}

// Remove deletes a crash-safe file and its companion files. It deletes the main file last: a kill
// before that leaves a main file without pending records.
func Remove(path string) {
	Point(PointUnlink)
	os.Remove(path + BigSuffix + NewSuffix)
	os.Remove(path + BigSuffix)
	os.Remove(path + StreamSuffix)
	Point(PointUnlinkBetween)
	os.Remove(path)
	Point(PointUnlinked)
}

package crashfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forebay-log/forebay/internal/mapped"
)

// A File is a crash-safe file in a directory. Other tools may look at it
// while its process lives.
type File struct {
	Path  string
	Bytes int64 // that of oversize records beside it included
	Alive bool  // a process holds its lock: it is that process's. Not looked at if Unborn
	Aside bool  // damaged, and renamed so by an earlier process
	// Unborn: its process died, or is about to go on, while it made the file. It
	// holds no record.
	Unborn bool
}

// IsName reports whether a file of this name is a crash-safe file, one that
// was set aside, or an unfinished one. Those that belong to another are none.
func IsName(name string) bool {
	for _, suffix := range []string{NewSuffix, BadSuffix} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.HasSuffix(name, Suffix)
}

// List lists the crash-safe files in dir, oldest first. It changes nothing;
// each lock is tried for a moment.
func List(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir) // names begin with the time of creation
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
		if err != nil { // it vanished
			continue
		}
		f := File{
			Path: filepath.Join(dir, name), Bytes: st.Size(),
			Aside: strings.HasSuffix(name, BadSuffix), Unborn: strings.HasSuffix(name, NewSuffix),
		}
		for _, suffix := range []string{BigSuffix, StreamSuffix} {
			if st, err := os.Lstat(f.Path + suffix); err == nil {
				f.Bytes += st.Size()
			}
		}
		f.Alive = !f.Unborn && inUse(f.Path) // its maker must not find it locked
		files = append(files, f)
	}
	return files, nil
}

// inUse reports whether somebody holds the lock of a file.
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

// ReadLive is [Read] for the file of a process that lives: it reads the file
// twice and leaves out what changed meanwhile, so that no record is torn.
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
	// What settled between two looks at its two files looks like a loss.
	im.Damaged -= im.DamagedBig
	im.DamagedBig, im.DamagedState = 0, 0
	return im, nil
}

// Remove unlinks a crash-safe file and what belongs to it, that itself last:
// a kill on the way leaves a file of which everything is settled.
func Remove(path string) {
	Point(PointUnlink)
	os.Remove(path + BigSuffix + NewSuffix)
	os.Remove(path + BigSuffix)
	os.Remove(path + StreamSuffix)
	Point(PointUnlinkBetween)
	os.Remove(path)
	Point(PointUnlinked)
}

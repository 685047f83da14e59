package readahead

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/mapped"
)

// lookTime is how long a process that asks whether a file is in use holds its lock
// at most.
const lookTime = 2 * time.Millisecond

// Adopt locks the files of dead processes in dir that hold data for one of the outputs, oldest
// first. The data is input, or the fact that the input continues within a line to be skipped.
// Damaged files are renamed and reported.
func Adopt(dir string, outputs []string) (files []*File, damaged []error) {
	mapped.RemoveUnborn(dir, suffix+newSuffix)
	for _, path := range mapped.Files(dir, suffix) {
		f, err := adopt(path)
		if errors.Is(err, mapped.ErrInUse) {
			time.Sleep(lookTime)
			f, err = adopt(path)
		}
		switch {
		case err == nil:
			if f.holdsFor(outputs) {
				f.commit(0) // what load has found
				files = append(files, f)
			} else {
				f.Close()
			}
		case errors.Is(err, errDamaged):
			if os.Rename(path, path+badSuffix) == nil {
				err = fmt.Errorf("%w; renamed to %s", err, path+badSuffix)
			}
			damaged = append(damaged, err)
		case !errors.Is(err, mapped.ErrInUse) && !errors.Is(err, os.ErrNotExist):
			damaged = append(damaged, err)
		}
	}
	return files, damaged
}

// holdsFor reports whether one of the outputs has not accepted all. The positions of
// other outputs stay where they are.
func (f *File) holdsFor(outputs []string) (holds bool) {
	for i, name := range f.outputs {
		f.refused[i] = !slices.Contains(outputs, name)
		holds = holds || (f.Pending(i) > 0 || f.InLongLine()) && !f.refused[i]
	}
	return holds
}

var errDamaged = errors.New("damaged")

// Take locks the file of a dead process for all its outputs.
func Take(path string) (*File, error) {
	f, err := adopt(path)
	if err == nil {
		f.commit(0)
	}
	return f, err
}

// adopt locks and maps the file of a dead process.
func adopt(path string) (*File, error) {
	file, err := mapped.Adopt(path)
	if err != nil {
		return nil, err
	}
	f, err := open(path, file)
	if err != nil {
		mapped.Unlock(file)
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// open reads the head of a file, maps it, and loads its state.
func open(path string, file *os.File) (*File, error) {
	id, err := readIdentity(file)
	if err != nil {
		return nil, err
	}
	mem, err := mapped.Map(file, id.head+page+id.ring)
	if err != nil {
		return nil, err
	}
	f := newFile(image{path: path, file: file, mem: mem}, id)
	if err := f.load(); err != nil {
		mapped.Unmap(mem)
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return f, nil
}

// Info describes a file without changing it.
type Info struct {
	Path    string
	Bytes   int64
	PID     uint32
	Created time.Time
	Alive   bool // a process holds its lock
	Aside   bool // damaged, and renamed so
	Err     error
	Pending map[string][]byte // input that each output has not accepted
}

// IsFile reports whether a file of this name is one of this package.
func IsFile(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, newSuffix), badSuffix)
	return strings.HasSuffix(name, suffix)
}

// List describes the files in dir, oldest first. Without the pending input of running processes,
// which changes all the time.
func List(dir string) (infos []Info) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() || !IsFile(e.Name()) || strings.HasSuffix(e.Name(), newSuffix) {
			continue
		}
		in := Info{Path: filepath.Join(dir, e.Name()), Aside: strings.HasSuffix(e.Name(), badSuffix)}
		if st, err := e.Info(); err == nil {
			in.Bytes = st.Size()
		}
		if !in.Aside {
			in.look()
		}
		infos = append(infos, in)
	}
	return infos
}

// look reads the file into in.
func (in *Info) look() {
	f, err := adopt(in.Path)
	if errors.Is(err, mapped.ErrInUse) {
		in.Alive = true
		return
	}
	if in.Err = err; err != nil {
		return
	}
	defer f.image.leave()
	in.PID = binary.LittleEndian.Uint32(f.image.mem[identPID:])
	in.Created = time.Unix(0, int64(binary.LittleEndian.Uint64(f.image.mem[identCreated:])))
	in.Pending = map[string][]byte{}
	for i, name := range f.outputs {
		if p := f.Held(i); len(p) > 0 {
			in.Pending[name] = p
		}
	}
	in.Err = f.image.broken
}

// Purge deletes a file, unless a process uses it: then the error wraps
// mapped.ErrInUse.
func Purge(path string) error {
	f, err := mapped.Adopt(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.Remove(path)
}

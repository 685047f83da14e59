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

// lookTime limits how long a process that checks whether a file is in use holds its lock.
const lookTime = 2 * time.Millisecond

// Adopt locks the files of dead processes in dir that contain input for one of the outputs, and
// returns them, oldest first. A file that only contains a position within a line to be skipped
// counts too. Damaged files are renamed and reported.
func Adopt(dir string, outputs []string) (files []*File, damaged []error) {
	mapped.RemoveIncomplete(dir, suffix+newSuffix)
	for _, path := range mapped.Files(dir, suffix) {
		f, err := adopt(path)
		if errors.Is(err, mapped.ErrInUse) {
			time.Sleep(lookTime)
			f, err = adopt(path)
		}
		switch {
		case err == nil:
			if f.holdsFor(outputs) {
				f.commit(0) // store the end that load has found
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

// holdsFor reports whether one of the outputs has not accepted all input. Only the given outputs
// are considered.
func (f *File) holdsFor(outputs []string) (holds bool) {
	for i, name := range f.outputs {
		f.refused[i] = !slices.Contains(outputs, name)
		holds = holds || (f.Pending(i) > 0 || f.InLongLine()) && !f.refused[i]
	}
	return holds
}

var errDamaged = errors.New("damaged")

// AdoptOne locks the file of a dead process for all its outputs.
func AdoptOne(path string) (*File, error) {
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

// open reads the identity of a file, maps it, and loads its state.
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

// Info is the result of examining a file without changing it.
type Info struct {
	Path    string
	Bytes   int64
	PID     uint32
	Created time.Time
	Alive   bool // a process holds its lock
	Damaged bool // the file was renamed because it is damaged
	Err     error
	Pending map[string][]byte // unaccepted input by output
}

// IsFile reports whether a file name belongs to this package.
func IsFile(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, newSuffix), badSuffix)
	return strings.HasSuffix(name, suffix)
}

// List examines the files in dir and returns them, oldest first. For files of running processes the
// pending input is omitted, because it changes all the time.
func List(dir string) (infos []Info) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() || !IsFile(e.Name()) || strings.HasSuffix(e.Name(), newSuffix) {
			continue
		}
		in := Info{Path: filepath.Join(dir, e.Name()), Damaged: strings.HasSuffix(e.Name(), badSuffix)}
		if st, err := e.Info(); err == nil {
			in.Bytes = st.Size()
		}
		if !in.Damaged {
			in.examine()
		}
		infos = append(infos, in)
	}
	return infos
}

// examine sets the other fields of in from the file at in.Path.
func (in *Info) examine() {
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

// Purge deletes a file. If a process uses the file, the error wraps mapped.ErrInUse.
func Purge(path string) error {
	f, err := mapped.Adopt(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.Remove(path)
}

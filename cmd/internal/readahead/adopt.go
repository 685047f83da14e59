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

// lookTime is the pause before a second attempt to lock a file. Another process may hold the lock
// for a short time to examine the file.
const lookTime = 2 * time.Millisecond

// Adopt locks and returns the files of dead processes in dir that contain input for one of the
// outputs, oldest first. A file without input is also returned if its position is within a line
// that is too long, because the rest of the line must be skipped. Damaged files are renamed and
// described in damaged.
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
			if f.hasInputFor(outputs) {
				f.commit(0) // store the end that the method load has determined
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

// hasInputFor reports whether f contains input that one of the outputs has not accepted. The
// outputs of f that are not in outputs are marked as refused, so that their positions do not
// change.
func (f *File) hasInputFor(outputs []string) (holds bool) {
	for i, name := range f.outputs {
		f.refused[i] = !slices.Contains(outputs, name)
		holds = holds || (f.Pending(i) > 0 || f.InLongLine()) && !f.refused[i]
	}
	return holds
}

// errDamaged is wrapped by errors about damaged files.
var errDamaged = errors.New("damaged")

// AdoptOne locks and returns the file of a dead process. Unlike [Adopt], it marks no output in the
// file as refused.
func AdoptOne(path string) (*File, error) {
	f, err := adopt(path)
	if err == nil {
		f.commit(0)
	}
	return f, err
}

// adopt locks and maps the file of a dead process. If another process uses the file, it returns an
// error that wraps mapped.ErrInUse.
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

// open maps a file and loads its identity and state.
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

// Info describes a file in the result of [List].
type Info struct {
	Path    string
	Bytes   int64
	PID     uint32
	Created time.Time
	Alive   bool // a running process uses the file
	Damaged bool // the file was damaged and therefore renamed
	Err     error
	Pending map[string][]byte // for each output by name, the input that it has not accepted
}

// IsFile reports whether name is the name of a file of this package, which may be incomplete or
// damaged.
func IsFile(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, newSuffix), badSuffix)
	return strings.HasSuffix(name, suffix)
}

// List describes the files in dir, oldest first. If a running process uses a file, Pending is nil,
// because the input changes all the time.
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

// examine reads the file and sets the fields of the Info that depend on its content.
func (in *Info) examine() {
	f, err := adopt(in.Path)
	if errors.Is(err, mapped.ErrInUse) {
		in.Alive = true
		return
	}
	if in.Err = err; err != nil {
		return
	}
	defer f.image.release()
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

// Purge deletes a file. If a process uses the file, it returns an error that wraps mapped.ErrInUse.
func Purge(path string) error {
	f, err := mapped.Adopt(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.Remove(path)
}

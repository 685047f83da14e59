package crashfile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/mapped"
)

// A Form identifies the wire format of the records in a file.
type Form struct {
	ContentType string
	Schema      uint32
}

// FormOf returns the Form of the records of a codec.
func FormOf(c batch.Codec) (f Form, err error) {
	if c == nil {
		return f, nil
	}
	err = contain.Call(func() {
		f.ContentType = c.ContentType()
		if v, ok := c.(interface{ SchemaVersion() uint32 }); ok {
			f.Schema = v.SchemaVersion()
		}
	})
	if err != nil {
		err = fmt.Errorf("slab: ContentType or SchemaVersion of Options.Codec failed: %w", err)
	}
	return f, err
}

// lookTime is the pause before a second attempt to lock a file. Another process may hold the lock
// for a short time to test whether the file is in use.
const lookTime = 2 * time.Millisecond

// An Adoption is a search for the crash-safe files of dead processes.
type Adoption struct {
	Dir  string
	Own  string // the path of this process's file, which is skipped
	Dict batch.Dictionary
	Held HeldBy
	// Codec is the destination's codec, and Form is the wire format of its records. The function
	// Other returns the codec for another Form, and whether the destination accepts records in that
	// Form. If it is nil, no other Form is accepted.
	Codec batch.Codec
	Form  Form
	Other func(contentType string, schema uint32) (batch.Codec, bool)
}

// Adopt locks the crash-safe files of dead processes in the directory and reads them, oldest first.
// It skips the files of running processes. The slice refused has an error for each file that is not
// adopted; see [Orphan.Refuse].
func (a *Adoption) Adopt() (found []*Orphan, refused []error) {
	mapped.RemoveIncomplete(a.Dir, Suffix+NewSuffix)
	names := mapped.Files(a.Dir, Suffix) // sorted; names begin with the time of creation
	names = slices.DeleteFunc(names, func(p string) bool { return p == a.Own })
	var busy []string
	claim := func(paths []string) {
		for _, path := range paths {
			o, err := Open(path, a.Dict, a.Held)
			switch {
			case errors.Is(err, ErrInUse):
				busy = append(busy, path)
				continue
			case errors.Is(err, os.ErrNotExist):
				continue
			case err == nil:
				err = a.codecOf(o)
			}
			if err != nil {
				refused = append(refused, o.Refuse(path, err))
				continue
			}
			o.StreamErr = o.Translate()
			found = append(found, o)
		}
	}
	if claim(names); len(busy) > 0 { // if another process held a lock only to test whether the file is in use, the lock is free now
		time.Sleep(lookTime)
		again := busy
		busy = nil
		claim(again)
		slices.SortFunc(found, func(a, b *Orphan) int { return strings.Compare(a.Path, b.Path) })
	}
	return found, refused
}

// Refuse closes the file of o, which may be nil, because of err. It renames a damaged file, so that
// later starts do not examine it again, and adds the new name to err. Other files keep their names.
func (o *Orphan) Refuse(path string, err error) error {
	if errors.Is(err, ErrDamaged) && SetAside(path) == nil {
		err = fmt.Errorf("%w; renamed to %s", err, path+BadSuffix)
	}
	if o != nil {
		o.Close()
	}
	return err
}

// codecOf sets o.Codec. If the destination does not accept the records, it returns the reason.
func (a *Adoption) codecOf(o *Orphan) error {
	if o.Codec = a.Codec; len(o.Records) == 0 || o.ContentType == a.Form.ContentType && o.Schema <= a.Form.Schema {
		return nil
	}
	if a.Other != nil {
		var c batch.Codec
		ok := false
		if err := contain.Call(func() { c, ok = a.Other(o.ContentType, o.Schema) }); err != nil {
			return fmt.Errorf("slab: %s is kept, because Crash.Codec failed for it: %w", o.Path, err)
		}
		if o.Codec = c; ok {
			return nil
		}
	}
	if o.ContentType == a.Form.ContentType {
		return fmt.Errorf("slab: %s holds %d records of version %d of type %q, but this output accepts up to version %d; the file is kept",
			o.Path, len(o.Records), o.Schema, a.Form.ContentType, a.Form.Schema)
	}
	return fmt.Errorf("slab: %s holds %d records of type %q, but this output accepts %q; the file is kept",
		o.Path, len(o.Records), o.ContentType, a.Form.ContentType)
}

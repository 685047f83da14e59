package slab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/mapped"
)

// A CrashFile is a crash-safe file in a directory. Other tools may look at it
// while its process lives.
type CrashFile struct {
	Path  string
	Bytes int64 // that of oversize records beside it included
	Alive bool  // a process holds its lock: it is that process's. Not looked at if Unborn
	Aside bool  // damaged, and renamed so by an earlier process
	// Unborn: its process died, or is about to go on, while it made the file. It
	// holds no record.
	Unborn bool
}

// IsCrashFile reports whether a file of this name is a crash-safe file, one that
// was set aside, or an unfinished one. Those that belong to another are none.
func IsCrashFile(name string) bool {
	for _, suffix := range []string{newSuffix, badSuffix} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.HasSuffix(name, crashSuffix)
}

// CrashFiles lists the crash-safe files in dir, oldest first. It changes nothing;
// each lock is tried for a moment.
func CrashFiles(dir string) ([]CrashFile, error) {
	entries, err := os.ReadDir(dir) // names begin with the time of creation
	if err != nil {
		return nil, fmt.Errorf("slab: cannot list crash-safe files: %w", err)
	}
	var files []CrashFile
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !IsCrashFile(name) {
			continue
		}
		st, err := e.Info()
		if err != nil { // it vanished
			continue
		}
		f := CrashFile{
			Path: filepath.Join(dir, name), Bytes: st.Size(),
			Aside: strings.HasSuffix(name, badSuffix), Unborn: strings.HasSuffix(name, newSuffix),
		}
		for _, suffix := range []string{bigSuffix, streamSuffix} {
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

// ReadLive is [ReadImage] for the file of a process that lives: it reads the file
// twice and leaves out what changed meanwhile, so that no record is torn.
func ReadLive(path string) (*Image, error) {
	before, err := ReadImage(path)
	if err != nil {
		return nil, err
	}
	im, err := ReadImage(path)
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

// CrashReplay is what [ReplayCrash] did.
type CrashReplay struct {
	Records uint64      // settled
	Tally   batch.Tally // of Records, those that were settled otherwise than delivered
	Left    uint64      // still in the file
	// Damaged could not be read, by this or an earlier recovery, or are of streams
	// that are not defined; the file is then set aside in the end.
	Damaged uint64
}

// CrashReplayOptions say how records are read. Nil is the zero value.
type CrashReplayOptions struct {
	// Streams translates the numbers of streams. Default nil: they stay.
	Streams batch.Dictionary
	// Codec returns the codec of a content type. Default nil: batches have none.
	Codec func(contentType string, schema uint32) batch.Codec
	// Limits are the largest batches. Default 64 KiB.
	Limits batch.Limits
	// Held is [Borrower].Held: which records are left out. Default nil: none.
	Held func(origin [16]byte, first, last uint64) []batch.Tickets
	// Flush is called once all records are sent; the file is removed when it has returned
	// nil. Default nil: the file is removed.
	Flush func(ctx context.Context) error
}

// replayBytes bounds a batch of ReplayCrash, unless there are limits.
const replayBytes = 64 << 10

// ReplayCrash hands what is in the crash-safe file of a dead process to send, in order,
// notes after each batch how far it came, and removes the file in the end. At the first
// error it stops; the batch concerned may arrive twice when it is tried again. The
// file of a living process is left alone: [ErrInUse]. One that cannot be read is left as
// it is: [ErrDamaged].
func ReplayCrash(ctx context.Context, path string, send func(context.Context, *batch.Batch) batch.Outcome, o *CrashReplayOptions) (done CrashReplay, err error) {
	if o == nil {
		o = &CrashReplayOptions{}
	}
	f, err := openOrphan(path, o.Streams, o.Held)
	if err != nil {
		if f != nil {
			f.f.Close()
		}
		return done, err
	}
	done.Left, done.Damaged = uint64(len(f.Records)), f.Damaged+f.lost+f.DamagedBefore
	if o.Codec != nil {
		f.codec = o.Codec(f.ContentType, f.Schema)
	}
	if _, err := f.translate(); err != nil {
		f.f.Close()
		return done, err
	}
	limits := o.Limits
	if limits.Bytes <= 0 {
		limits.Bytes = replayBytes
	}
	var c batchCopy
	for f.next < len(f.Records) {
		if err = ctx.Err(); err == nil {
			b := f.take(&c, limits)
			out := send(ctx, b)
			if err = out.Check(b.Len()); err == nil {
				err = out.Err()
			}
			if err == nil {
				f.persist(f.offered())
				done.Records += uint64(b.Len())
				done.Left -= uint64(b.Len())
				continue
			}
		}
		f.f.Close()
		return done, fmt.Errorf("slab: replay of %s stopped: %w", path, err)
	}
	if o.Flush != nil {
		if err := o.Flush(ctx); err != nil {
			f.f.Close()
			return done, fmt.Errorf("slab: replay of %s: %w", path, err)
		}
	}
	f.finish()
	return done, nil
}

// PurgeCrash deletes a crash-safe file, whatever is in it, and what belongs to it. It
// returns how many bytes went, and [ErrInUse], wrapped, while a process uses the
// file.
func PurgeCrash(path string) (bytes int64, err error) {
	f, err := lockOrphan(path)
	if err != nil {
		return 0, err
	}
	defer f.f.Close()
	for _, p := range []string{path, path + bigSuffix, path + streamSuffix} {
		if st, err := os.Stat(p); err == nil {
			bytes += st.Size()
		}
	}
	removeCrash(path)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("slab: cannot delete %s", path)
	}
	return bytes, nil
}

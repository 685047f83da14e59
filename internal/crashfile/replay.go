package crashfile

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/forebay-log/forebay/batch"
)

// Replayed is the result of [Replay].
type Replayed struct {
	Records uint64 // number of records that were sent successfully
	Left    uint64 // number of records that remain in the file
	// Damaged is the number of records that are unreadable or belong to undefined streams, in this
	// recovery or an earlier one. If it is not 0, the file is renamed at the end instead of
	// removed.
	Damaged uint64
}

// ReplayOptions configures a replay. A nil pointer means the zero value.
type ReplayOptions struct {
	// Streams translates stream numbers. Default nil: they are unchanged.
	Streams batch.Dictionary
	// Codec returns the codec of a content type. Default nil: batches have no codec.
	Codec func(contentType string, schema uint32) batch.Codec
	// Limits are the maximum size of a batch. Default 64 KiB.
	Limits batch.Limits
	// Held returns the records to omit. Default nil: none.
	Held HeldBy
}

// replayBytes is the default size limit of a batch in Replay.
const replayBytes = 64 << 10

// Replay passes the records in the crash-safe file of a dead process to the function send, in
// order. It stores its progress in the file after each batch, and finally removes the file. It
// stops at the first error. The batch for which send has failed may be delivered again by the next
// Replay.
//
// The error wraps [ErrInUse] for the file of a running process, and [ErrDamaged] for a file that
// cannot be read. Replay does not change such a file.
func Replay(ctx context.Context, path string, send func(context.Context, *batch.Batch) batch.Outcome, o *ReplayOptions) (done Replayed, err error) {
	if o == nil {
		o = &ReplayOptions{}
	}
	f, err := Open(path, o.Streams, o.Held)
	if err != nil {
		if f != nil {
			f.Close()
		}
		return done, err
	}
	done.Left, done.Damaged = uint64(len(f.Records)), f.Damaged+f.Lost+f.DamagedBefore
	if o.Codec != nil {
		f.Codec = o.Codec(f.ContentType, f.Schema)
	}
	if err := f.Translate(); err != nil {
		f.Close()
		return done, err
	}
	limits := o.Limits
	if limits.Bytes <= 0 {
		limits.Bytes = replayBytes
	}
	var c Copy
	for !f.Done() {
		if err = ctx.Err(); err == nil {
			b := f.Take(&c, limits)
			out := send(ctx, b)
			if err = out.Check(b.Len()); err == nil {
				err = out.Err()
			}
			if err == nil {
				f.Persist()
				done.Records += uint64(b.Len())
				done.Left -= uint64(b.Len())
				continue
			}
		}
		f.Close()
		return done, fmt.Errorf("slab: replay of %s stopped: %w", path, err)
	}
	f.Finish()
	return done, nil
}

// Purge deletes a crash-safe file, with its records and its companion files. If a running process
// uses the file, the error wraps [ErrInUse].
func Purge(path string) error {
	f, err := lock(path)
	if err != nil {
		return err
	}
	defer f.Close()
	Remove(path)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("slab: cannot delete %s", path)
	}
	return nil
}

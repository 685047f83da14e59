package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/spool"
)

// This file contains code for crash-safe slabs. A killed program that used slab.Options.Crash, such
// as forebay pipe --crash-safe, leaves undelivered records in them.

// crashFiles returns the files with crash-safe slabs in dir.
func crashFiles(dir string) ([]crashfile.File, error) {
	files, err := crashfile.List(dir)
	if err != nil {
		return nil, exit.Runtime(errors.New(slabText(err)))
	}
	return files, nil
}

// slabText returns the text of an error of package slab without the prefix.
func slabText(err error) string { return strings.TrimPrefix(err.Error(), "slab: ") }

// readCrash reads a file with crash-safe slabs. A running process may use the file.
func readCrash(f *crashfile.File) (*crashfile.Image, error) {
	if f.Alive {
		return crashfile.ReadLive(f.Path)
	}
	return crashfile.Read(f.Path)
}

// catCrash prints the records in a file with crash-safe slabs.
func catCrash(f *crashfile.File, forms *spool.Options, print func(batch.Codec, batch.Record) error) (damaged bool, err error) {
	if f.Aside || f.Incomplete {
		return f.Aside, nil
	}
	im, err := readCrash(f)
	if err != nil {
		return true, errors.New(slabText(err))
	}
	streams := map[uint32]uint32{}
	for id, def := range im.Streams {
		streams[id] = forms.Streams.Stream(def)
	}
	codec := forms.Codec(im.ContentType, im.Schema)
	if codec == nil {
		codec = encode.RawCodec()
	}
	for _, r := range im.Records {
		if id, ok := streams[r.Stream]; ok {
			r.Stream = id
		} else if !im.Defined(r.Stream) { // if the stream is not defined, its number may belong to another stream
			r.Stream = forms.Streams.Stream([]byte(undefined))
		}
		if err := print(codec, r); err != nil {
			return false, outputDone{err}
		}
	}
	return im.Damage() != "", nil
}

// undefined is used as the definition of a stream whose definition is missing. No codec can decode
// it.
const undefined = "\xff"

// outputDone wraps an error of the output. All other errors are about the crash-safe file.
type outputDone struct{ error }

// replayCrash delivers the records in files with crash-safe slabs that killed programs have left in
// dir. It does not change files of running programs.
func replayCrash(ctx context.Context, w io.Writer, dir string, o *spool.Options, send Sender) error {
	files, err := crashFiles(dir)
	if err != nil {
		return err
	}
	var bad error
	for _, f := range files {
		if f.Aside || f.Incomplete {
			continue
		}
		done, err := crashfile.Replay(ctx, f.Path, send, &crashfile.ReplayOptions{Streams: o.Streams, Codec: o.Codec})
		switch {
		case errors.Is(err, crashfile.ErrInUse):
			fmt.Fprintf(w, "forebay: %s: in use by a running process, skipped\n", f.Path)
			bad = exit.Config(fmt.Errorf("%s is in use by a running process, which will deliver its records", f.Path))
			continue
		case errors.Is(err, crashfile.ErrDamaged):
			fmt.Fprintf(w, "forebay: %s\n", slabText(err))
			bad = exit.Runtime(fmt.Errorf("%s could not be read", f.Path))
			continue
		}
		fmt.Fprintf(w, "forebay: %s: %s delivered, %s left", f.Path, console.Amount(done.Records, "record"), units.Count(done.Left))
		if done.Damaged > 0 {
			fmt.Fprintf(w, ", %s unreadable", units.Count(done.Damaged))
		}
		fmt.Fprintln(w)
		if err != nil {
			return exit.With(exit.KeptCode, errors.New(slabText(err)))
		}
		if done.Damaged > 0 {
			bad = exit.Runtime(fmt.Errorf("%s of %s could not be read; the file was set aside", console.Amount(done.Damaged, "record"), f.Path))
		}
	}
	return bad
}

// purgeCrash deletes the files with crash-safe slabs that killed programs have left. If yes is
// false, it deletes nothing and returns the number of files that it would delete.
func purgeCrash(w io.Writer, dir string, onlyDamaged, yes bool) (would uint64, err error) {
	files, err := crashFiles(dir)
	if err != nil {
		return 0, err
	}
	var n, pending, alive uint64
	var bytes int64
	for _, f := range files {
		if onlyDamaged && !f.Aside {
			continue
		}
		if f.Alive {
			alive++
			fmt.Fprintf(w, "%s: in use by a running process, skipped\n", f.Path)
			continue
		}
		size := f.Bytes
		if yes {
			size, err = crashfile.Purge(f.Path)
			if errors.Is(err, crashfile.ErrInUse) {
				alive++
				continue
			}
			if err != nil {
				return 0, exit.Runtime(errors.New(slabText(err)))
			}
		} else {
			l, _ := crashListing(&f)
			pending += l.Pending
		}
		n++
		bytes += size
	}
	switch {
	case yes:
		fmt.Fprintf(w, "%s: deleted %s, %s\n", dir, console.Amount(n, "file"), units.Size(float64(bytes)))
	case onlyDamaged:
		fmt.Fprintf(w, "%s: would delete %s, %s\n", dir, console.Amount(n, "file"), units.Size(float64(bytes)))
	default:
		fmt.Fprintf(w, "%s: would delete %s with %s, %s\n", dir, console.Amount(n, "file"), console.Amount(pending, "pending record"), units.Size(float64(bytes)))
	}
	if alive > 0 && !onlyDamaged {
		err = exit.Runtime(fmt.Errorf("%s: %s in use by another process", dir, console.Amount(alive, "file")))
	}
	if yes {
		n = 0
	}
	return n, err
}

package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

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
			return false, outputFailure{err}
		}
	}
	return im.Damage() != "", nil
}

// undefined stands for the missing definition of a stream (a tag or a label set). No codec can
// decode it.
const undefined = "\xff"

// outputFailure wraps an error of the output. All other errors are about the crash-safe file.
type outputFailure struct{ error }

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

// purgeCrash deletes the files with crash-safe slabs that killed programs have left. If the
// parameter yes is false, it deletes nothing and returns the number of files that it would delete.
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
		if yes {
			err = crashfile.Purge(f.Path)
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
		bytes += f.Bytes
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

// crashListing describes a file with crash-safe slabs for a listing.
func crashListing(f *crashfile.File) (out spoolFile, damaged bool) {
	out = spoolFile{Name: filepath.Base(f.Path), Kind: KindSlabs, Bytes: f.Bytes, Owner: "dead"}
	if f.Alive {
		out.Owner = "alive"
	}
	switch {
	case f.Aside:
		out.Health = "damaged, set aside"
		return out, true
	case f.Incomplete:
		out.Health = "ok, unfinished and empty"
		return out, false
	}
	im, err := readCrash(f)
	if err != nil {
		out.Health = healthOf(err)
		return out, errors.Is(err, crashfile.ErrDamaged)
	}
	begun := time.Unix(0, im.Created).UTC()
	out.Begun, out.ContentType, out.PID = &begun, im.ContentType, im.PID
	out.Records = uint64(len(im.Records))
	out.Pending = out.Records
	return out, crashHealth(im, &out)
}

// crashHealth sets the health field of out, which describes a file with crash-safe slabs. It
// reports whether the file is damaged.
func crashHealth(im *crashfile.Image, out *spoolFile) bool {
	var notes []string
	if im.Evicted > 0 {
		notes = append(notes, console.Amount(im.Evicted, "record")+" dropped by DropOldest")
	}
	if im.HeapOnly > 0 {
		notes = append(notes, console.Amount(im.HeapOnly, "record")+" only in memory")
	}
	if im.MovedToHeap {
		notes = append(notes, "its process continued without it")
	}
	out.Health = "ok"
	damage := im.Damage()
	if damage != "" {
		out.Health = "damaged: " + damage
	}
	if im.OtherBoot {
		notes = append(notes, "from before the last boot")
	}
	if len(notes) > 0 {
		out.Health += ", " + strings.Join(notes, ", ")
	}
	return damage != ""
}

// healthOf returns the health of a file that cannot be read because of err.
func healthOf(err error) string {
	text := slabText(err)
	if _, why, ok := strings.Cut(text, slabText(crashfile.ErrDamaged)+": "); ok {
		return "damaged: " + why
	}
	return text
}

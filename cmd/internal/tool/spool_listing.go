package tool

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/internal/crashfile"
)

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

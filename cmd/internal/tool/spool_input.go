package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/mapped"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/spool"
)

// leftInput returns the read-ahead files in dir that killed programs have left, including damaged
// ones.
func leftInput(dir string) (left []readahead.Info) {
	for _, in := range readahead.List(dir) {
		if in.Damaged || in.Err != nil || len(in.Pending) > 0 {
			left = append(left, in)
		}
	}
	return left
}

// inputDamage describes the damage of a read-ahead file. If the file is intact, it returns "".
func inputDamage(in *readahead.Info) string {
	switch {
	case in.Damaged:
		return "damaged, set aside"
	case in.Err != nil:
		return console.Plain(in.Err)
	}
	return ""
}

// listInput adds the read-ahead files in dir to out. It returns the number of damaged files.
func listInput(dir string, out *SpoolListing) (damaged int) {
	for _, in := range leftInput(dir) {
		f := spoolFile{Name: filepath.Base(in.Path), Kind: KindInput, Bytes: in.Bytes, Owner: "dead", PID: in.PID, Health: "ok"}
		if !in.Created.IsZero() {
			begun := in.Created.UTC()
			f.Begun = &begun
		}
		for _, p := range in.Pending {
			f.Records += countLines(p)
		}
		f.Pending = f.Records
		if why := inputDamage(&in); why != "" {
			f.Health = why
			damaged++
		}
		out.Files = append(out.Files, f)
		out.Bytes += f.Bytes
		out.Pending += f.Pending
	}
	return damaged
}

// countLines returns the number of lines in p, including an incomplete last line.
func countLines(p []byte) uint64 {
	n := bytes.Count(p, []byte("\n"))
	if len(p) > 0 && p[len(p)-1] != '\n' {
		n++
	}
	return uint64(n)
}

// catInput prints the input that each output has not accepted. It returns the number of damaged
// files.
func catInput(dir string, print func(batch.Codec, batch.Record) error) (damaged int, err error) {
	for _, in := range leftInput(dir) {
		if inputDamage(&in) != "" {
			damaged++
		}
		for _, name := range slices.Sorted(maps.Keys(in.Pending)) {
			for line := range bytes.Lines(in.Pending[name]) {
				if err := print(encode.RawCodec(), batch.Record{Data: withNewline(line)}); err != nil {
					return damaged, outputError(err)
				}
			}
		}
	}
	return damaged, nil
}

// withNewline returns line with a newline at its end.
func withNewline(line []byte) []byte {
	if line[len(line)-1] != '\n' {
		line = append(slices.Clip(line), '\n')
	}
	return line
}

// replayInput delivers the input that the outputs of killed programs have not accepted.
func replayInput(ctx context.Context, w io.Writer, dir string, o *spool.Options, send Sender) error {
	var bad error
	for _, in := range leftInput(dir) {
		if why := inputDamage(&in); why != "" {
			if !in.Damaged {
				bad = exit.Runtime(fmt.Errorf("%s: %s", in.Path, why))
			}
			continue
		}
		f, err := readahead.AdoptOne(in.Path)
		if err != nil { // another program has just locked the file
			bad = exit.Config(errors.New(console.Plain(err)))
			continue
		}
		var done uint64
		for i := range f.Outputs() {
			for err == nil && f.Pending(i) > 0 {
				var n int
				if n, err = replayLines(ctx, f, i, o.Codec("", 0), send); err == nil {
					done += uint64(n)
				}
			}
		}
		var left uint64
		for i := range f.Outputs() {
			left += countLines(f.Held(i))
		}
		f.Close()
		fmt.Fprintf(w, "forebay: %s: %s delivered, %s left\n", in.Path, console.Amount(done, "record"), units.Count(left))
		if err != nil {
			return exit.With(exit.KeptCode, fmt.Errorf("%s: %s", in.Path, console.Plain(err)))
		}
	}
	return bad
}

// replayLines delivers up to 64 KiB of lines of one output. It returns the number of delivered
// lines.
func replayLines(ctx context.Context, f *readahead.File, output int, codec batch.Codec, send Sender) (n int, err error) {
	const maxBytes = 64 << 10
	b := &batch.Batch{Codec: codec}
	size := 0
	for line := range bytes.Lines(f.Held(output)) {
		if size += len(line); n > 0 && size > maxBytes {
			size -= len(line)
			break
		}
		b.Append(withNewline(line), 0, batch.Meta{})
		n++
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	o := send(ctx, b)
	if err := o.Err(); err != nil {
		return 0, err
	}
	f.AcceptFirst(output, size)
	return n, f.Broken()
}

// purgeInput deletes the read-ahead files that killed programs have left. If the parameter yes is
// false, it deletes nothing and returns the number of files that it would delete.
func purgeInput(w io.Writer, dir string, onlyDamaged, yes bool) (would uint64, err error) {
	var n, pending uint64
	var size int64
	for _, in := range leftInput(dir) {
		if onlyDamaged && !in.Damaged {
			continue
		}
		if yes {
			if err := readahead.Purge(in.Path); errors.Is(err, mapped.ErrInUse) {
				continue // another program has just locked the file
			} else if err != nil {
				return 0, exit.Runtime(errors.New(console.Plain(err)))
			}
		}
		for _, p := range in.Pending {
			pending += countLines(p)
		}
		n++
		size += in.Bytes
	}
	switch {
	case yes:
		fmt.Fprintf(w, "%s: deleted %s, %s\n", dir, console.Amount(n, "file"), units.Size(float64(size)))
		return 0, nil
	case onlyDamaged:
		fmt.Fprintf(w, "%s: would delete %s, %s\n", dir, console.Amount(n, "file"), units.Size(float64(size)))
	default:
		fmt.Fprintf(w, "%s: would delete %s with %s, %s\n", dir, console.Amount(n, "file"), console.Amount(pending, "pending record"), units.Size(float64(size)))
	}
	return n, nil
}

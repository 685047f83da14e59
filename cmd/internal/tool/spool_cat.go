package tool

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/spool"
)

func newSpoolCat() *cobra.Command {
	var raw, all bool
	cmd := &cobra.Command{
		Use:   "cat DIR",
		Short: "Print the records in a spool as JSON lines",
		Long: `Print the undelivered records in a spool, oldest first, as one JSON object per line. A
record in a form that this program cannot read becomes {"raw":"..."}. With --raw, records
are printed as the bytes that would be sent.

Damage is reported and skipped, and the exit code is 1.`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := spoolDirs(args[0])
			if err != nil {
				return err
			}
			forms, err := storedForms()
			if err != nil {
				return exit.Runtime(err)
			}
			out := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
			damaged := 0
			var line []byte
			print := func(c batch.Codec, r batch.Record) error {
				rec := r.Data
				if !raw {
					line = append(c.AppendJSON(line[:0], rec, r.Meta), '\n')
					rec = line
				}
				_, err := out.Write(rec)
				return err
			}
			for _, d := range dirs {
				if d.Segments {
					n, err := catSegments(cmd.ErrOrStderr(), d.Dir, forms, all, print)
					if err != nil {
						return err
					}
					damaged += n
				}
				if d.input {
					n, err := catInput(d.Dir, print)
					if err != nil {
						return err
					}
					damaged += n
				}
				n, err := catSlabs(cmd.ErrOrStderr(), d, forms, print)
				if err != nil {
					return err
				}
				damaged += n
			}
			if err := out.Flush(); err != nil {
				return outputError(err)
			}
			if damaged > 0 {
				return exit.Runtime(fmt.Errorf("%s could not be read to the end", console.Amount(uint64(damaged), "file")))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the stored bytes of records")
	cmd.Flags().BoolVar(&all, "all", false, "print delivered records too, if they are still stored")
	return cmd
}

// catSegments prints the records in segments. It returns the number of damaged files.
func catSegments(stderr io.Writer, dir string, forms *spool.Options, all bool, print func(batch.Codec, batch.Record) error) (damaged int, err error) {
	for e, err := range diskqueue.Scan(dir, forms) {
		switch {
		case errors.As(err, new(*spool.CorruptError)):
			damaged++
			fmt.Fprintf(stderr, "forebay: %s: %s\n", dir, spoolText(err))
			continue
		case err != nil:
			return damaged, exit.Runtime(errors.New(spoolText(err)))
		case e.Acked && !all:
			continue
		}
		c := e.Batch.Codec
		if c == nil {
			c = encode.RawCodec()
		}
		for _, r := range e.Batch.All() {
			if err := print(c, r); err != nil {
				return damaged, outputError(err)
			}
		}
	}
	return damaged, nil
}

// catSlabs prints the records in crash-safe slabs. It returns the number of damaged files.
func catSlabs(stderr io.Writer, d SpoolDir, forms *spool.Options, print func(batch.Codec, batch.Record) error) (damaged int, err error) {
	if !d.slabs {
		return 0, nil
	}
	files, err := crashFiles(d.Dir)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		bad, err := catCrash(&f, forms, print)
		if done, ok := errors.AsType[outputFailure](err); ok {
			return damaged, outputError(done.error)
		}
		if bad {
			damaged++
			why := "damaged, set aside"
			if err != nil {
				why = healthOf(err)
			} else if !f.Aside {
				why = "a part of it is damaged"
			}
			fmt.Fprintf(stderr, "forebay: %s: %s\n", f.Path, why)
		}
	}
	return damaged, nil
}

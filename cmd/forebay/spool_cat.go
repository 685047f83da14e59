package main

import (
	"bufio"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/spool"
)

func newSpoolCat() *cobra.Command {
	var raw, all bool
	cmd := &cobra.Command{
		Use:   "cat DIR",
		Short: "Print the records in a spool as JSON lines",
		Long: `Print the records in a spool that are not delivered yet, oldest first, as one JSON
object per line. A record in a form that this program cannot read becomes
{"raw":"..."}. With --raw they are printed byte for byte as they would be sent.

Damage is reported and skipped; the exit code is then 1.`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := spoolDirs(args[0])
			if err != nil {
				return err
			}
			forms, err := storedForms()
			if err != nil {
				return runtimeError(err)
			}
			out := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
			damaged := 0
			var line []byte
			for _, dir := range dirs {
				for e, err := range spool.Scan(dir, forms) {
					switch {
					case errors.Is(err, spool.ErrCorrupt):
						damaged++
						fmt.Fprintf(cmd.ErrOrStderr(), "forebay: %s: %s\n", dir, spoolText(err))
						continue
					case err != nil:
						return runtimeError(errors.New(spoolText(err)))
					case e.Acked && !all:
						continue
					}
					c := e.Batch.Codec
					if c == nil {
						c = encode.RawCodec()
					}
					for _, r := range e.Batch.All() {
						rec := r.Data
						if !raw {
							line = append(c.AppendJSON(line[:0], rec, r.Meta), '\n')
							rec = line
						}
						if _, err := out.Write(rec); err != nil {
							return outputError(err)
						}
					}
				}
			}
			if err := out.Flush(); err != nil {
				return outputError(err)
			}
			if damaged > 0 {
				return runtimeError(fmt.Errorf("%s could not be read to the end", plural(uint64(damaged), "file")))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print records as they are stored")
	cmd.Flags().BoolVar(&all, "all", false, "print delivered records too, as far as they are still there")
	return cmd
}

// outputError is nil when whoever reads the output has seen enough, as head does.
func outputError(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return runtimeError(err)
}

package tool

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/units"
)

func newSpoolPurge() *cobra.Command {
	var yes, damaged bool
	cmd := &cobra.Command{
		Use:   "purge DIR --yes",
		Short: "Delete the contents of a spool",
		Long: `Delete the contents of a spool: all records, delivered or not. With --damaged, only the
unreadable files that were set aside are deleted.

Without --yes the command lists the files, deletes nothing, and exits with 2. Crash-safe
slabs of a running program are kept.`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := spoolDirs(args[0])
			if err != nil {
				return err
			}
			files := uint64(0)
			var inUse error
			for _, d := range dirs {
				if d.slabs {
					n, err := purgeCrash(cmd.OutOrStdout(), d.Dir, damaged, yes)
					files += n
					inUse = errors.Join(inUse, err)
				}
				if d.input {
					n, err := purgeInput(cmd.OutOrStdout(), d.Dir, damaged, yes)
					files += n
					inUse = errors.Join(inUse, err)
				}
				if d.Segments {
					n, err := purgeSegments(cmd.OutOrStdout(), d.Dir, damaged, yes)
					if err != nil {
						return err
					}
					files += n
				}
			}
			if inUse != nil {
				return exit.Runtime(inUse)
			}
			if files > 0 {
				return exit.Usage(errors.New("nothing was deleted: add --yes to delete"))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "delete the files (default: only list them)")
	cmd.Flags().BoolVar(&damaged, "damaged", false, "delete only the damaged files that were set aside")
	return cmd
}

// purgeSegments deletes the segments of a spool. If the parameter yes is false, it deletes nothing
// and returns the number of segments that it would delete.
func purgeSegments(w io.Writer, dir string, onlyDamaged, yes bool) (would uint64, err error) {
	l, _, err := listSpool(dir, false)
	if err != nil {
		return 0, err
	}
	if yes {
		gone, freed, err := diskqueue.Purge(dir, onlyDamaged)
		if err != nil {
			return 0, exit.Runtime(errors.New(spoolText(err)))
		}
		fmt.Fprintf(w, "%s: deleted %s, %s\n", dir, console.Amount(uint64(gone), "file"), units.Size(float64(freed)))
		return 0, nil
	}
	bytes := int64(0)
	for _, f := range l.Files {
		if f.Aside || !onlyDamaged {
			would++
			bytes += f.Bytes
		}
	}
	what := console.Amount(would, "file")
	if !onlyDamaged {
		what += " with " + console.Amount(l.Pending, "pending record")
	}
	fmt.Fprintf(w, "%s: would delete %s, %s\n", dir, what, units.Size(float64(bytes)))
	return would, nil
}

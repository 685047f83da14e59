package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/units"
)

// ListDir lists the files in a directory. It returns the number of damaged files. If verify is
// true, it reads the segments completely.
func ListDir(d SpoolDir, verify bool) (out SpoolListing, damaged int, err error) {
	out = SpoolListing{Dir: d.Dir, Files: []spoolFile{}}
	if d.Segments {
		l, listed, err := listSpool(d.Dir, verify)
		if err != nil {
			return out, 0, err
		}
		out, damaged = listed, l.Damaged
		if out.DeadLetters, err = linesIn(filepath.Join(d.Dir, dest.DeadLetterName)); err != nil {
			return out, 0, exit.Runtime(errors.New(console.ReadRemedy(console.PathFirst(err))))
		}
	}
	if d.input {
		damaged += listInput(d.Dir, &out)
	}
	if !d.slabs {
		return out, damaged, nil
	}
	files, err := crashFiles(d.Dir)
	if err != nil {
		return out, 0, err
	}
	for _, f := range files {
		file, bad := crashListing(&f)
		if bad {
			damaged++
		}
		out.Files = append(out.Files, file)
		out.Bytes += file.Bytes
		out.Pending += file.Pending
	}
	return out, damaged, nil
}

// linesIn returns the number of lines in a file, or 0 if the file does not exist.
func linesIn(path string) (n uint64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer f.Close()
	for part := make([]byte, 64<<10); ; {
		k, err := f.Read(part)
		n += uint64(bytes.Count(part[:k], []byte("\n")))
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}

// listSpool lists the segments in a directory.
func listSpool(dir string, verify bool) (*diskqueue.Listing, SpoolListing, error) {
	l, err := diskqueue.List(dir, verify)
	if err != nil {
		return nil, SpoolListing{}, exit.Runtime(errors.New(spoolText(err)))
	}
	out := SpoolListing{Dir: dir, Acked: l.Acked, Pending: l.Pending, Bytes: l.Bytes, Files: []spoolFile{}}
	for i := range l.Files {
		f := &l.Files[i]
		file := spoolFile{
			Name: f.Name, Kind: kindSegment, ContentType: f.ContentType, Bytes: f.Bytes,
			Batches: f.Batches, Records: f.Records, Pending: f.Pending, Health: health(f),
		}
		if !f.Begun.IsZero() {
			begun := f.Begun.UTC()
			file.Begun = &begun
		}
		out.Files = append(out.Files, file)
	}
	return l, out, nil
}

// health returns the health of a segment for a listing.
func health(f *diskqueue.SegmentInfo) string {
	switch {
	case f.Aside:
		return "damaged, set aside"
	case f.Damage != nil && f.Damage.Records > 0:
		return fmt.Sprintf("damaged at byte %d: %v, %s lost", f.Damage.Offset, f.Damage.Err, plural.Of(f.Damage.Records, "record"))
	case f.Damage != nil:
		return fmt.Sprintf("damaged at byte %d: %v", f.Damage.Offset, f.Damage.Err)
	case f.Torn:
		return "ok, the last batch is unfinished"
	case f.Parked:
		return "ok, parked: the destination did not accept this type"
	}
	return "ok"
}

func newSpoolLs() *cobra.Command {
	output := setting.Choice{Value: "text", Of: []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:   "ls DIR",
		Short: "List the contents of a spool",
		Long: `List the contents of a spool: files, batches, records, undelivered records (pending), and
whether the files can be read. Only the headers of batches are read; forebay spool verify
checks every byte.

KIND is segment, crash-safe slabs, or input that a killed program had read and not yet
put into a slab. TYPE is the form of the records (-: lines). HEALTH is ok or the unreadable part.
A parked segment holds records in a form that the destination of an earlier run did not
accept. They wait for a destination that accepts it, or for forebay spool replay.

Records that the destination has refused are in dead-letters.jsonl. The listing counts them. They are
not delivered again.

OWNER is the state of the program that crash-safe slabs belong to. The slabs of a running
program change all the time, and the listing is a snapshot. The slabs of a program
that has ended are delivered by its next run or by forebay spool replay.`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := spoolDirs(args[0])
			if err != nil {
				return err
			}
			all := []SpoolListing{}
			for _, d := range dirs {
				l, _, err := ListDir(d, false)
				if err != nil {
					return err
				}
				all = append(all, l)
			}
			if output.Value == "json" {
				return printSpoolJSON(cmd.OutOrStdout(), all)
			}
			return printSpools(cmd.OutOrStdout(), all, time.Now())
		},
	}
	output.Add(cmd, "output", "o", "output format")
	return cmd
}

func printSpoolJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return runtimeErrorIf(enc.Encode(v))
}

// runtimeErrorIf returns exit.Runtime(err). If err is nil, it returns nil.
func runtimeErrorIf(err error) error {
	if err == nil {
		return nil
	}
	return exit.Runtime(err)
}

func printSpools(w io.Writer, all []SpoolListing, now time.Time) error {
	var sb strings.Builder
	for i, l := range all {
		if i > 0 {
			sb.WriteByte('\n')
		}
		fmt.Fprintf(&sb, "%s: %s of %s in %s\n", filepath.Clean(l.Dir), console.Amount(l.Pending, "pending record"), units.Size(float64(l.Bytes)), console.Amount(uint64(len(l.Files)), "file"))
		if l.DeadLetters > 0 {
			fmt.Fprintf(&sb, "%s: %s, which are not delivered again\n", filepath.Join(l.Dir, dest.DeadLetterName), console.Amount(l.DeadLetters, "dead letter"))
		}
		if len(l.Files) == 0 {
			continue
		}
		tw := tabwriter.NewWriter(&sb, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "FILE\tBATCHES\tRECORDS\tPENDING\tSIZE\tAGE\tKIND\tOWNER\tTYPE\tHEALTH")
		for _, f := range l.Files {
			age := "-"
			if f.Begun != nil {
				age = units.Duration(now.Sub(*f.Begun).Round(time.Second))
			}
			batches := units.Count(f.Batches)
			if f.Kind != kindSegment {
				batches = "-"
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Name, batches, units.Count(f.Records),
				units.Count(f.Pending), units.Size(float64(f.Bytes)), age, f.Kind, f.owner(), dash(f.ContentType), f.Health)
		}
		if err := tw.Flush(); err != nil {
			return exit.Runtime(err)
		}
	}
	_, err := io.WriteString(w, sb.String())
	return runtimeErrorIf(err)
}

// owner returns the owner of the file for a listing, with the process id if the process is alive.
func (f *spoolFile) owner() string {
	if f.Owner == "alive" && f.PID != 0 {
		return fmt.Sprintf("alive (pid %d)", f.PID)
	}
	return dash(f.Owner)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newSpoolVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Read and check every byte of a spool",
		Long: `Read and check every byte of a spool, and report the position of any damage. The exit code
is 1 if a file cannot be read to its end, or if a damaged file was set aside earlier. Delete
such files with forebay spool purge --damaged. An unfinished last batch, which is being
written or whose writer was killed, is not damage.

Crash-safe slabs that were full and waited for delivery have checksums, which are checked. In
other slabs each record is checked for impossible values.`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := spoolDirs(args[0])
			if err != nil {
				return err
			}
			files, damaged := 0, 0
			for _, d := range dirs {
				l, bad, err := ListDir(d, true)
				if err != nil {
					return err
				}
				for _, f := range l.Files {
					in := console.Amount(f.Batches, "batch")
					switch f.Kind {
					case KindInput:
						in = "input read by a program that has ended"
					case KindSlabs:
						in = "slabs of " + map[string]string{"alive": "a running program", "dead": "a program that has ended"}[f.Owner]
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s in %s: %s\n", filepath.Join(d.Dir, f.Name),
						console.Amount(f.Records, "record"), in, f.Health)
				}
				files += len(l.Files)
				damaged += bad
			}
			if damaged > 0 {
				return exit.Runtime(fmt.Errorf("%d of %d files are damaged", damaged, files))
			}
			return nil
		},
	}
}

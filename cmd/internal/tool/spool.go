package tool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/diskqueue"
)

// oneDir returns an error unless there is exactly one argument, the directory.
func oneDir(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return exit.Usage(fmt.Errorf("one spool directory is needed, got %d arguments", len(args)))
	}
	return nil
}

// A SpoolDir is a directory with stored records. Its fields report whether it contains segments,
// crash-safe slabs, and read-ahead files.
type SpoolDir struct {
	Dir                    string
	Segments, slabs, input bool
}

// spoolDirs returns dir if it contains stored records. If it does not, spoolDirs returns the
// subdirectories that do.
func spoolDirs(dir string) ([]SpoolDir, error) {
	d, err := inspect(dir)
	if err != nil {
		return nil, exit.Config(errors.New(console.ReadRemedy(console.PathFirst(err))))
	}
	if d.Segments || d.slabs {
		return []SpoolDir{d}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, exit.Config(errors.New(console.ReadRemedy(console.PathFirst(err))))
	}
	var dirs []SpoolDir
	empty := false
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		d, err := inspect(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, exit.Config(errors.New(console.ReadRemedy(console.PathFirst(err))))
		}
		if d.Segments || d.slabs {
			dirs = append(dirs, d)
		}
		empty = empty || dest.IsSafeName(e.Name())
	}
	if d.input { // input in read-ahead files is newer than records in slabs
		dirs = append(dirs, d)
	}
	if len(dirs) == 0 && !empty {
		return nil, exit.Config(fmt.Errorf("%s: there is no spool here", dir))
	}
	return dirs, nil
}

// inspect reports which kinds of files are in dir.
func inspect(dir string) (SpoolDir, error) {
	d := SpoolDir{Dir: dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return d, err
	}
	for _, e := range entries {
		d.Segments = d.Segments || !e.IsDir() && diskqueue.IsFile(e.Name())
		d.slabs = d.slabs || !e.IsDir() && crashfile.IsName(e.Name())
		d.input = d.input || !e.IsDir() && readahead.IsFile(e.Name())
	}
	d.input = d.input && len(leftInput(dir)) > 0
	return d, nil
}

// spoolText returns the text of an error of package spool without the prefix.
func spoolText(err error) string { return strings.TrimPrefix(err.Error(), "spool: ") }

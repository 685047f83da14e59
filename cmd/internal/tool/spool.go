package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
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

// spoolDirs returns dir if it contains stored records. Otherwise, spoolDirs returns the
// subdirectories of dir that contain stored records.
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

// SpoolListing is the result of spool ls and spool verify for one directory.
type SpoolListing struct {
	Dir     string      `json:"dir"`
	Acked   uint64      `json:"acked_batch"`
	Pending uint64      `json:"pending_records"`
	Bytes   int64       `json:"bytes"`
	Files   []spoolFile `json:"files"`

	DeadLetters uint64 `json:"dead_letters,omitempty"` // number of records in the dead-letter file
}

// spoolFile describes one file of a SpoolListing.
type spoolFile struct {
	Name        string     `json:"file"`
	Kind        string     `json:"kind"`
	Owner       string     `json:"owner,omitempty"` // state of the process that has created a slab file: alive or dead
	PID         uint32     `json:"pid,omitempty"`   // process id of the owner, only for display
	ContentType string     `json:"content_type,omitempty"`
	Begun       *time.Time `json:"begun,omitempty"`
	Bytes       int64      `json:"bytes"`
	Batches     uint64     `json:"batches"`
	Records     uint64     `json:"records"`
	Pending     uint64     `json:"pending_records"`
	Health      string     `json:"health"`
}

// These are the kinds of files with stored records.
const (
	kindSegment = "segment"
	KindSlabs   = "crash-safe slabs"
	KindInput   = "input read ahead"
)

// A Sender sends a batch and returns its outcome.
type Sender func(context.Context, *batch.Batch) batch.Outcome

// outputError returns the error for a failed write to standard output. If the reader of the output
// has exited, such as head(1), it returns nil.
func outputError(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return exit.Runtime(err)
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/spool"
)

// newSpoolCmd returns forebay spool.
func newSpoolCmd() *cobra.Command { return newSpool(openReplay) }

// newSpool returns forebay spool; replay opens the destination of spool replay.
func newSpool(replay replayOpener) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spool",
		Short: "Look into a spool, check it, deliver or delete what is in it",
		Long: `Look into a spool, check it, deliver or delete what is in it. A spool is where
forebay pipe --spool, and programs that use forebay as a library, keep records
that could not be delivered yet.

DIR is the directory of one spool, or one that holds several, as --spool does for
several destinations.

ls, cat and verify read only, and may be used while a program uses the spool.
replay and purge need it for themselves.`,
		Example: `  forebay spool ls /var/spool/forebay
  forebay spool cat /var/spool/forebay | jq .msg
  forebay spool verify /var/spool/forebay || mail -s 'spool is damaged' root
  forebay spool replay /var/spool/forebay --to file:late.log
  forebay spool purge /var/spool/forebay --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no forebay spool %s", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newSpoolLs(), newSpoolCat(), newSpoolVerify(), newSpoolReplay(replay), newSpoolPurge())
	return cmd
}

// oneDir is the argument of all spool commands.
func oneDir(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError(fmt.Errorf("one spool directory is needed, got %d arguments", len(args)))
	}
	return nil
}

// spoolDirs returns dir if it is a spool, else the spools in it.
func spoolDirs(dir string) ([]string, error) {
	is, err := isSpool(dir)
	if err != nil {
		return nil, configError(errors.New(plainPath(err)))
	}
	if is {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, configError(errors.New(plainPath(err)))
	}
	var dirs []string
	for _, e := range entries {
		sub := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			continue
		}
		if is, err := isSpool(sub); err != nil {
			return nil, configError(errors.New(plainPath(err)))
		} else if is {
			dirs = append(dirs, sub)
		}
	}
	if len(dirs) == 0 {
		return nil, configError(fmt.Errorf("%s: there is no spool here", dir))
	}
	return dirs, nil
}

// isSpool reports whether files of a spool are in dir.
func isSpool(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && spool.IsFile(name) {
			return true, nil
		}
	}
	return false, nil
}

// plainPath says what is wrong with a path, path first.
func plainPath(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Path + ": " + pe.Err.Error()
	}
	return err.Error()
}

// spoolText is the text of an error of package spool without its prefix.
func spoolText(err error) string { return strings.TrimPrefix(err.Error(), "spool: ") }

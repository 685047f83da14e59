package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/file"
)

// fileMemory keeps a file from waiting for the input, and the input for it: while one
// half of the slabs is written the other is filled.
const fileMemory = 1 << 20

// fileDest is file:PATH.
type fileDest struct {
	rotateSize  size
	rotateEvery duration
	keep        int
	keepFor     duration
	compress    choice
	mkdirs      bool
	noReserve   bool
}

func (*fileDest) Scheme() string { return "file" }

func (*fileDest) Usage() (form, what string) {
	return "file:PATH", "append to a file; see the --rotate flags. SIGHUP opens it anew"
}

func (d *fileDest) Flags(cmd *cobra.Command) {
	d.compress = choice{value: "none", of: []string{"none", "gzip", "zstd"}}
	fs := cmd.Flags()
	fs.Var(&d.rotateSize, "rotate-size", "file: move the file aside before it exceeds this size (0: never)")
	fs.Var(&d.rotateEvery, "rotate-every", "file: begin a new file each such period, counted in UTC, such as 24h or 1h (0: never)")
	fs.IntVar(&d.keep, "keep", 0, "file: keep `N` old files (0: all)")
	fs.Var(&d.keepFor, "keep-for", "file: how long to keep old files, such as 14d; whole days (0: for ever)")
	d.compress.add(cmd, "compress", "", "file: how to compress old files")
	fs.BoolVar(&d.mkdirs, "mkdirs", false, "file: create missing directories")
	fs.BoolVar(&d.noReserve, "no-reserve", false, "file: reserve no space of the disk behind the end of a large file")
}

func (d *fileDest) Open(rest string) (*target, error) {
	path, err := filePath(rest)
	if err != nil {
		return nil, err
	}
	o := &file.Options{
		MakeDirs:    d.mkdirs,
		NoReserve:   d.noReserve,
		RotateBytes: d.rotateSize.value,
		RotateEvery: time.Duration(d.rotateEvery),
		KeepFiles:   d.keep,
		KeepFor:     time.Duration(d.keepFor),
	}
	if d.compress.value != "none" {
		o.Compress = d.compress.value
	}
	rotates := o.RotateBytes > 0 || o.RotateEvery > 0
	if !rotates && (o.KeepFiles != 0 || o.KeepFor != 0 || o.Compress != "") {
		return nil, errors.New("--keep, --keep-for and --compress are about old files, which only --rotate-size or --rotate-every make")
	}
	if o.RotateEvery != 0 && o.RotateEvery < time.Second {
		return nil, fmt.Errorf("--rotate-every %s is too short: use a second or more", o.RotateEvery)
	}
	if o.KeepFiles < 0 {
		return nil, fmt.Errorf("--keep %d: use 0 or more", o.KeepFiles)
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() && !st.IsDir() && !rotates {
		return openDevice(path)
	}
	f, err := file.Open(path, o)
	if err != nil {
		if !d.mkdirs && errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w; --mkdirs creates it", err)
		}
		return nil, err
	}
	info, _ := os.Stat(path)
	return &target{dest: deliver.ToWriteCloser(&earlyFile{File: f, path: path}), memory: fileMemory, file: info, reopen: f.Reopen}, nil
}

// openDevice opens a pipe with a name, a terminal or another device, which have
// rules of their own.
func openDevice(path string) (*target, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	s := file.NewStdio(f, path)
	return &target{dest: s, gone: s.Gone(), tty: isTerminal(f)}, nil
}

// filePath reads what follows "file:": a path as it is, or the rest of a URL if
// it begins with two slashes.
func filePath(rest string) (string, error) {
	if rest == "" {
		return "", errors.New("it names no file: write file:PATH, such as file:app.log")
	}
	if !strings.HasPrefix(rest, "//") {
		return filepath.FromSlash(rest), nil
	}
	u, err := url.Parse("file:" + rest)
	switch {
	case err != nil:
		return "", fmt.Errorf("it is not a valid URL: write file:PATH, or file:///ABSOLUTE/PATH with %%-escapes")
	case u.Host != "" && u.Host != "localhost":
		return "", fmt.Errorf("files of another host (%s) cannot be opened: write file:PATH, or file:///ABSOLUTE/PATH", u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("a file URL takes no ? or #: use flags such as --rotate-size, or write %3F and %23 if they are part of the name")
	case u.Path == "" || u.Path == "/":
		return "", errors.New("it names no file: write file:///ABSOLUTE/PATH")
	}
	return filepath.FromSlash(u.Path), nil
}

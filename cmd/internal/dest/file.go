package dest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/stdio"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/internal/vfs"
)

// fileMemory is the size of the memory for a file in bytes. Input can fill one half while the other
// half is written.
const fileMemory = 1 << 20

// fileDest is the destination file:PATH.
type fileDest struct{}

func (fileDest) Scheme() string { return "file" }

func (fileDest) Usage() (form, what string) {
	return "file:PATH", "append to a file; see the --rotate flags. SIGHUP reopens it"
}

// Check checks the path and its directory, and creates nothing.
func (fileDest) Check(rest string, c *Spec) error {
	path, err := FilePath(rest)
	if err != nil {
		return err
	}
	o, err := FileOptions(c)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	st, err := os.Stat(dir)
	switch {
	case err == nil && !st.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case errors.Is(err, os.ErrNotExist) && !o.MakeDirs:
		return fmt.Errorf("there is no directory %s; --mkdirs creates it", dir)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return vfs.Cause(err)
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return errors.New("it is a directory: name a file in it")
	}
	return nil
}

func (fileDest) Open(rest string, c *Spec) (*Target, error) {
	path, err := FilePath(rest)
	if err != nil {
		return nil, err
	}
	o, err := FileOptions(c)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() && !st.IsDir() && o.RotateBytes == 0 && o.RotateEvery == 0 {
		if c.On("fsync") {
			return nil, errors.New("it is not a regular file; leave out --fsync")
		}
		return openDevice(path)
	}
	f, err := file.Open(path, o)
	if err != nil {
		if !o.MakeDirs && errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w, or use --mkdirs", err)
		}
		return nil, err
	}
	info, _ := os.Stat(path)
	return &Target{Dest: deliver.ToWriteCloser(&writebackFile{File: f, path: path}), memory: fileMemory, File: info, Reopen: f.Reopen}, nil
}

// FileOptions converts the options of c to options of package file.
func FileOptions(c *Spec) (*file.Options, error) {
	compress, err := c.compression()
	if err != nil {
		return nil, err
	}
	o := &file.Options{
		Compress:    compress,
		MakeDirs:    c.On("mkdirs"),
		NoReserve:   c.On("no-reserve"),
		RotateBytes: c.Bytes("rotate-size"),
		RotateEvery: c.Duration("rotate-every"),
		KeepFiles:   c.Count("keep"),
		KeepFor:     c.Duration("keep-for"),
	}
	if c.On("fsync") {
		if o.Compress != "" {
			return nil, errors.New("--fsync and --compress exclude each other: a compressed copy is not synced before the original is removed")
		}
		o.Sync = "always"
	}
	if o.RotateBytes == 0 && o.RotateEvery == 0 && (o.KeepFiles != 0 || o.KeepFor != 0 || o.Compress != "") {
		return nil, errors.New("--keep, --keep-for and --compress need --rotate-size or --rotate-every: they apply to rotated files")
	}
	if o.RotateBytes != 0 && o.RotateBytes < units.MinFileSize {
		return nil, fmt.Errorf("--rotate-size %s is too small: use %s or more, such as 100MiB", units.FlagSize(o.RotateBytes), units.FlagSize(units.MinFileSize))
	}
	if o.RotateEvery != 0 && o.RotateEvery < time.Second {
		return nil, fmt.Errorf("--rotate-every %s is too short: use a second or more", o.RotateEvery)
	}
	return o, nil
}

// openDevice opens a named pipe, a terminal or another device. A device cannot be rotated or
// synced, and its reader may exit.
func openDevice(path string) (*Target, error) {
	f, err := vfs.OpenAppend(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, errors.New(console.WriteRemedy(fmt.Sprintf("cannot open %q: %s", path, vfs.Cause(err))))
	}
	s := stdio.New(f, strconv.Quote(path))
	return &Target{Dest: s, Gone: s.Gone(), Tty: console.IsTerminal(f)}, nil
}

// FilePath returns the path in a file address. rest is the text after "file:": a path, or the rest
// of a file URL.
func FilePath(rest string) (string, error) {
	if rest == "" {
		return "", errors.New("the file is missing: write file:PATH, such as file:app.log")
	}
	if !strings.HasPrefix(rest, "//") {
		return filepath.FromSlash(setting.PathIn(rest)), nil
	}
	u, err := url.Parse("file:" + rest)
	switch {
	case err != nil:
		return "", fmt.Errorf("it is not a valid URL: write file:PATH, or file:///ABSOLUTE/PATH with %%-escapes")
	case u.Host != "" && u.Host != "localhost":
		return "", fmt.Errorf("files of another host (%s) cannot be opened: write file:PATH, or file:///ABSOLUTE/PATH", u.Host)
	case u.Fragment != "":
		return "", errors.New("a file URL has no fragment: write %23 for # in the name")
	case u.Path == "" || u.Path == "/":
		return "", errors.New("the file is missing: write file:///ABSOLUTE/PATH")
	}
	return filepath.FromSlash(u.Path), nil
}

// compression returns the value of --compress as drivers expect it: "" for no compression.
func (c *Spec) compression() (string, error) {
	name := c.Text("compress")
	if name == "none" {
		return "", nil
	}
	if _, err := compression.Find(name); err != nil {
		return "", fmt.Errorf("--compress is %q: only forebay-all has it; use gzip", name)
	}
	return name, nil
}

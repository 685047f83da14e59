package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/internal/vfs"
)

// checkPaths reports directories and files that the program would be unable to create. It reads the
// file system and creates nothing.
func (c *Pipeline) checkPaths() {
	check := func(it *item, key, fault string) {
		if fault != "" && !it.doubtful(key) {
			it.faultf(key, "%s", fault)
		}
	}
	var created []string // directories that outputs create at startup
	for _, out := range c.Outs {
		name := dest.SafeName(out.Name)
		if spool := out.Text("spool"); spool != "" {
			check(c.items[out], "spool", whyNoDirectory(spool, name))
			created = append(created, filepath.Join(spool, name))
		}
		if path, err := dest.FilePath(strings.TrimPrefix(out.To, "file:")); err == nil && strings.HasPrefix(out.To, "file:") {
			switch it := c.items[out]; {
			case out.On("mkdirs"):
				check(it, "to", whyNoDirectory(filepath.Dir(path), ""))
				created = append(created, filepath.Dir(path))
			case !it.doubtful("mkdirs"):
				check(it, "to", whyNoFile(path, created))
			}
		}
		if deadLetters := out.Text("dead-letter"); deadLetters != "" {
			check(c.items[out], "dead-letter", whyNoFile(deadLetters, created))
		}
		if slabs := out.Text("crash-safe"); slabs != "" {
			if out.On("crash-safe-required") { // if crash-safe is not required and the directory cannot be created, the output uses heap memory
				check(c.items[out], "crash-safe", whyNoDirectory(slabs, name))
			}
			created = append(created, filepath.Join(slabs, name))
		}
	}
	for _, in := range c.Inputs {
		if dir := in.Values.Text("state"); dir != "" {
			check(c.items[in], "state", whyNoDirectory(dir, ""))
		}
	}
}

// whyNoDirectory returns the reason why the directory dir/name cannot be used or created, or "" if
// it can. Parent directories may be missing, because outputs create missing parents.
func whyNoDirectory(dir, name string) string {
	dir = filepath.Clean(dir)
	at := filepath.Join(dir, name)
	for below := ""; ; below, at = at, filepath.Dir(at) {
		if st, err := os.Stat(at); err == nil {
			switch why := whyNoFilesIn(at); {
			case st.IsDir() && (why == "" || below == "" || at == dir):
				return why
			case st.IsDir():
				return fmt.Sprintf("%s cannot be created: %s", dir, why)
			case at == dir:
				return fmt.Sprintf("%s is not a directory: name a directory, or a path that does not exist yet", dir)
			case below == "": // dir is a directory, but dir/name is not
				return fmt.Sprintf("%s is not a directory: rename or remove it", at)
			}
			return fmt.Sprintf("%s cannot be created: %s is not a directory", dir, at)
		}
		if st, err := os.Lstat(at); err == nil && st.Mode()&os.ModeSymlink != 0 {
			return fmt.Sprintf("%s cannot be created: %s is a link to a missing file", dir, at)
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// whyNoFilesIn returns the reason why no files can be created in the directory dir, or "" if they
// can.
func whyNoFilesIn(dir string) string {
	text := "no files can be created in " + dir
	if !takesFiles(dir) {
		return text
	}
	if err := dest.CanWrite(dir, true); err != nil {
		return console.WriteRemedy(text + ": " + err.Error())
	}
	return ""
}

// whyNoFile returns the reason why a file at path cannot be written, or "" if it can. The parent
// directory must exist, or be in the list created.
func whyNoFile(path string, created []string) string {
	if st, err := os.Stat(path); err == nil {
		if st.IsDir() {
			return fmt.Sprintf("%s is a directory: name a file", path)
		}
		if err := dest.CanWrite(path, false); err != nil {
			return console.WriteRemedy(fmt.Sprintf("%s cannot be written: %s", path, err))
		}
		return ""
	}
	dir := filepath.Dir(path)
	switch st, err := os.Stat(dir); {
	case os.IsNotExist(err) && slices.ContainsFunc(created, func(at string) bool { return isWithin(at, dir) }):
	case os.IsNotExist(err):
		return fmt.Sprintf("the directory %s does not exist: create it", dir)
	case err == nil && !st.IsDir():
		return fmt.Sprintf("%s is not a directory", dir)
	case err == nil:
		return whyNoFilesIn(dir)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Sprintf("%s is not a directory", dir)
	default:
		return console.WriteRemedy(fmt.Sprintf("%s cannot be written: %s", path, vfs.Cause(err)))
	}
	return ""
}

// isWithin reports whether path is dir or a path below dir.
func isWithin(path, dir string) bool {
	path, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return false
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

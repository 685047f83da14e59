//go:build unix

package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported is whether programs can be looked at on this system.
const Supported = true

const (
	suffix   = ".sock"
	runDir   = "/run/forebay"
	longName = 40 // bytes of a name in the name of a socket
)

// maxPath is the longest name of a socket.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// own returns the directories for sockets of this user, the best first.
func own() (dirs []string) {
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) {
		dirs = append(dirs, filepath.Join(x, "forebay"))
	}
	return append(dirs, runDir, filepath.Join(os.TempDir(), "forebay-"+strconv.Itoa(os.Geteuid())))
}

// all returns the directories that may contain sockets of this user; for root, of all users.
func all() []string {
	dirs := own()
	if os.Geteuid() == 0 {
		for _, pattern := range []string{"/run/user/*/forebay", filepath.Join(os.TempDir(), "forebay-[0-9]*")} {
			more, _ := filepath.Glob(pattern) // the patterns are good
			dirs = append(dirs, more...)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// owned returns an error unless dir is a directory in which only this user and root can create or
// replace files.
func owned(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !ok || int(sys.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by others", dir)
	}
	return nil
}

// Listen listens on the socket at path, which only this user can open. If path is empty
// it is NAME-PID.sock in a directory where [Find] looks. A socket that a dead process has
// left is replaced. Close removes the socket.
func Listen(path, name string) (net.Listener, error) {
	if path != "" {
		return listen(path)
	}
	var errs []error
	for _, dir := range own() {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			errs = append(errs, err)
			continue
		}
		if err := owned(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		ln, err := listen(filepath.Join(dir, fileName(name)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		sweep(dir)
		return ln, nil
	}
	return nil, errors.Join(errs...)
}

// fileName returns the name of the socket of this process.
func fileName(name string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, name)
	safe = strings.TrimLeft(safe[:min(len(safe), longName)], ".")
	return safe + "-" + strconv.Itoa(os.Getpid()) + suffix
}

// listen binds a hidden name and renames it when the listener is ready. A socket without a listener
// therefore belongs to a dead process.
func listen(path string) (net.Listener, error) {
	dir, base := filepath.Split(path)
	hidden := filepath.Join(dir, "."+base)
	if base == "" {
		return nil, errors.New("it is a directory; name a socket in it")
	}
	if len(hidden) > maxPath {
		return nil, fmt.Errorf("the name of a socket has at most %d bytes", maxPath-1)
	}
	switch st, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, bare(err)
	case st.Mode()&fs.ModeSocket == 0:
		return nil, errors.New("the file exists and is not a socket; name another path")
	default:
		if err := dead(path); err != nil {
			return nil, err
		}
	}
	if dead(hidden) == nil {
		_ = os.Remove(hidden) // of a process that was killed right here
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, bare(err)
	}
	ln.SetUnlinkOnClose(false)
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		err = os.Rename(hidden, path)
	}
	var st fs.FileInfo
	if err == nil {
		st, err = os.Lstat(path)
	}
	if err != nil {
		_ = ln.Close()
		_ = os.Remove(hidden)
		return nil, bare(err)
	}
	return &socket{ln, path, st}, nil
}

// A socket is a listener with a name.
type socket struct {
	*net.UnixListener
	path string
	st   fs.FileInfo
}

// Addr returns the name that others use.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close removes the socket, if it is still the one of that name.
func (s *socket) Close() error {
	if st, err := os.Lstat(s.path); err == nil && os.SameFile(st, s.st) {
		_ = os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// dead returns nil if path is a socket without a listener.
func dead(path string) error {
	if st, err := os.Lstat(path); err != nil {
		return err
	} else if st.Mode()&fs.ModeSocket == 0 {
		return errors.New("it is not a socket")
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return errors.New("another process listens there")
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil
	}
	return bare(err)
}

// sweep removes what dead processes have left in dir, which is owned.
func sweep(dir string) {
	for _, path := range sockets(dir) {
		pid := path[strings.LastIndexByte(path, '-')+1 : len(path)-len(suffix)]
		n, err := strconv.Atoi(pid)
		if err == nil && n > 0 && unix.Kill(n, 0) == unix.ESRCH && dead(path) == nil {
			_ = os.Remove(path)
		}
	}
}

// sockets returns the sockets in dir.
func sockets(dir string) (paths []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if name := e.Name(); e.Type() == fs.ModeSocket && strings.HasSuffix(name, suffix) && name[0] != '.' {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

// Find returns the programs that run and that this user may look at, by their start, and
// the sockets at which it failed to. It removes sockets of dead processes.
func Find(ctx context.Context) (found []Running, failed []error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, dir := range all() {
		if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
			continue
		}
		if err := unix.Access(dir, unix.R_OK|unix.X_OK); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", dir, err))
			continue
		}
		mine := owned(dir) == nil
		for _, path := range sockets(dir) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				st, err := Get(ctx, path)
				if Ended(err) {
					if mine && dead(path) == nil {
						_ = os.Remove(path)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", path, bare(err)))
					return
				}
				found = append(found, Running{path, st})
			})
		}
	}
	wg.Wait()
	slices.SortFunc(found, func(a, b Running) int {
		return a.State.Start.Compare(b.State.Start)
	})
	return found, failed
}

// Places returns the directories in which Find looks.
func Places() []string { return all() }

// Ended reports whether err of [Get] means that no process listens at the socket.
func Ended(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// bare returns an error of the system without the path, which the caller adds.
func bare(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}

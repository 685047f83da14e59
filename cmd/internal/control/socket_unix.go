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

// Supported reports whether programs on this system have a control socket.
const Supported = true

const (
	suffix   = ".sock"
	runDir   = "/run/forebay"
	longName = 40 // maximum length of the program name in the name of a socket, in bytes
)

// maxPath is the maximum length of a socket's path in bytes.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// ownDirs returns the directories for sockets of this user, in the order of preference.
func ownDirs() (dirs []string) {
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) {
		dirs = append(dirs, filepath.Join(x, "forebay"))
	}
	return append(dirs, runDir, filepath.Join(os.TempDir(), "forebay-"+strconv.Itoa(os.Geteuid())))
}

// allDirs returns the directories that may contain sockets of this user. For root, it returns the
// directories of all users.
func allDirs() []string {
	dirs := ownDirs()
	if os.Geteuid() == 0 {
		for _, pattern := range []string{"/run/user/*/forebay", filepath.Join(os.TempDir(), "forebay-[0-9]*")} {
			more, _ := filepath.Glob(pattern) // no error, because the patterns are valid constants
			dirs = append(dirs, more...)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// checkOwned returns an error if users other than this user and root can create or replace files in
// dir.
func checkOwned(dir string) error {
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

// Listen listens on the socket at path, which only this user can open. If path is empty, the socket
// is NAME-PID.sock in a directory that [Find] searches. Listen replaces the socket of a dead
// process. Closing the listener removes the socket.
func Listen(path, name string) (net.Listener, error) {
	if path != "" {
		return listen(path)
	}
	var errs []error
	for _, dir := range ownDirs() {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			errs = append(errs, err)
			continue
		}
		if err := checkOwned(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		ln, err := listen(filepath.Join(dir, fileName(name)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removeDead(dir)
		return ln, nil
	}
	return nil, errors.Join(errs...)
}

// fileName returns the file name of the socket of this process.
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

// listen binds a socket to a hidden name and renames it to path when it accepts connections. A
// socket at path without a listener therefore belongs to a dead process.
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
		return nil, withoutPath(err)
	case st.Mode()&fs.ModeSocket == 0:
		return nil, errors.New("the file exists and is not a socket; name another path")
	default:
		if err := checkDead(path); err != nil {
			return nil, err
		}
	}
	if checkDead(hidden) == nil {
		_ = os.Remove(hidden) // left by a process that was killed before it renamed the socket
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, withoutPath(err)
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
		return nil, withoutPath(err)
	}
	return &socket{ln, path, st}, nil
}

// A socket is a listener whose socket was renamed to path.
type socket struct {
	*net.UnixListener
	path string
	st   fs.FileInfo
}

// Addr returns the address with the current path.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close closes the listener. It removes the socket at the path, unless another socket has replaced
// it.
func (s *socket) Close() error {
	if st, err := os.Lstat(s.path); err == nil && os.SameFile(st, s.st) {
		_ = os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// checkDead returns nil if path is a socket without a listening process.
func checkDead(path string) error {
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
	return withoutPath(err)
}

// removeDead removes the sockets in dir that belong to dead processes.
func removeDead(dir string) {
	for _, path := range sockets(dir) {
		pid := path[strings.LastIndexByte(path, '-')+1 : len(path)-len(suffix)]
		n, err := strconv.Atoi(pid)
		if err == nil && n > 0 && unix.Kill(n, 0) == unix.ESRCH && checkDead(path) == nil {
			_ = os.Remove(path)
		}
	}
}

// sockets returns the paths of the sockets in dir.
func sockets(dir string) (paths []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if name := e.Name(); e.Type() == fs.ModeSocket && strings.HasSuffix(name, suffix) && name[0] != '.' {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

// Find returns the running programs that this user may query, ordered by start time. failed
// contains an error for each socket that could not be queried. Find removes the sockets of dead
// processes.
func Find(ctx context.Context) (found []Running, failed []error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, dir := range allDirs() {
		if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
			continue
		}
		if err := unix.Access(dir, unix.R_OK|unix.X_OK); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", dir, err))
			continue
		}
		mine := checkOwned(dir) == nil
		for _, path := range sockets(dir) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				st, err := Get(ctx, path)
				if Ended(err) {
					if mine && checkDead(path) == nil {
						_ = os.Remove(path)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", path, withoutPath(err)))
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

// Places returns the directories that Find searches.
func Places() []string { return allDirs() }

// Ended reports whether an error of [Get] means that no process listens on the socket.
func Ended(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// withoutPath returns the cause of a system error, for messages that already contain the path.
func withoutPath(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}

//go:build linux || darwin

package slab

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func randomID(id *[16]byte) error {
	_, err := rand.Read(id[:])
	return err
}

// mapFile creates a file of size bytes that nobody else uses, allocates all of it,
// and maps it. It is locked for as long as it is open.
func mapFile(path string, size int) (f *os.File, mem []byte, err error) {
	f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(path)
		}
	}()
	if err := lockFile(f); err != nil {
		return nil, nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	if err := refuseNetworkFS(f); err != nil {
		return nil, nil, err
	}
	if err := allocate(f, int64(size)); err != nil {
		return nil, nil, fmt.Errorf("cannot allocate %d bytes: %w", size, err)
	}
	mem, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot map: %w", err)
	}
	populate(mem)
	return f, mem, nil
}

func unmapFile(mem []byte) { _ = unix.Munmap(mem) }

// lockFile takes the lock that says that a process uses the file. The lock goes
// with the process, so it never lies, as a pid can.
func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

func unlockFile(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

func locked(err error) bool {
	return errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EAGAIN)
}

// bootID returns the id of this boot, zero where there is none.
func bootID() (id [16]byte) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	text := strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == len(id) {
		copy(id[:], raw)
	}
	return id
}

// openRegular opens a file that is one: no link, and nothing that could make the
// call wait, such as a FIFO.
func openRegular(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s is %w", path, errNotRegular)
	}
	if err != nil {
		return nil, err
	}
	return regular(f)
}

// links returns how many names a file has.
func links(st os.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}

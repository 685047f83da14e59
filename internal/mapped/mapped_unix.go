//go:build linux || darwin

package mapped

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

// RandomID fills id with random bytes.
func RandomID(id *[16]byte) error {
	_, err := rand.Read(id[:])
	return err
}

// Create creates and locks a file of size bytes, allocates all its blocks, and maps it. The lock is
// held until the file is closed and unmapped.
func Create(path string, size int) (f *os.File, mem []byte, err error) {
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
	if err := Lock(f); err != nil {
		return nil, nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	if err := refuseNetworkFS(f); err != nil {
		return nil, nil, err
	}
	if err := allocate(f, int64(size)); err != nil {
		return nil, nil, fmt.Errorf("cannot allocate %d bytes: %w", size, err)
	}
	if mem, err = Map(f, size); err != nil {
		return nil, nil, err
	}
	populate(mem)
	return f, mem, nil
}

// Map maps the first size bytes of f, for reading and writing.
func Map(f *os.File, size int) ([]byte, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("cannot map: %w", err)
	}
	return mem, nil
}

// Unmap unmaps mem, which must not be accessed afterwards.
func Unmap(mem []byte) { _ = unix.Munmap(mem) }

// Lock locks a file without waiting. [IsLocked] reports whether its error means that the file is
// locked already.
func Lock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// Unlock releases the lock of f. Closing f does not release it while the file is mapped.
func Unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// IsLocked reports whether err, an error of [Lock], means that the file is already locked.
func IsLocked(err error) bool {
	return errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EAGAIN)
}

// BootID returns the id of the current boot of the machine, or zero if the system does not provide
// one.
func BootID() (id [16]byte) {
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

// OpenRegular opens a regular file. It does not follow a symbolic link, and does not block on a
// FIFO.
func OpenRegular(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s is %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	return regular(f)
}

// Links returns the number of hard links of a file.
func Links(st os.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}

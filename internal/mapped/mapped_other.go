//go:build !linux && !darwin

package mapped

import "os"

// This platform has no memory-mapped files, so most functions in this file return ErrNotSupported.
// See mapped_unix.go for their meaning.

// RandomID returns ErrNotSupported.
func RandomID(*[16]byte) error { return ErrNotSupported }

// Create returns ErrNotSupported.
func Create(string, int) (*os.File, []byte, error) { return nil, nil, ErrNotSupported }

func Map(*os.File, int) ([]byte, error) { return nil, ErrNotSupported }

func Unmap([]byte) {}

func Lock(*os.File) error { return ErrNotSupported }

func Unlock(*os.File) {}

func IsLocked(error) bool { return false }

func BootID() (id [16]byte) { return id }

func Links(os.FileInfo) uint64 { return 1 }

// OpenRegular opens a regular file.
func OpenRegular(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

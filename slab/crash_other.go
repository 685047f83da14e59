//go:build !linux && !darwin

package slab

import "os"

func randomID(*[16]byte) error { return ErrNotSupported }

func mapFile(string, int) (*os.File, []byte, error) { return nil, nil, ErrNotSupported }

func unmapFile([]byte) {}

func lockFile(*os.File) error { return ErrNotSupported }

func unlockFile(*os.File) {}

func locked(error) bool { return false }

func bootID() (id [16]byte) { return id }

func links(os.FileInfo) uint64 { return 1 }

// openRegular opens a file that is one.
func openRegular(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

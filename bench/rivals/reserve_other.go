//go:build !linux

package rivals

import (
	"errors"
	"os"
)

func reserve(*os.File, int64) error { return errors.ErrUnsupported }

//go:build !linux

package rivals

import (
	"errors"
	"os"
)

func layOut(*os.File, int64) error { return errors.ErrUnsupported }

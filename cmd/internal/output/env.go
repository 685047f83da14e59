package output

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
)

// An Env contains what the outputs and the inputs of a pipeline share.
type Env struct {
	Console      *console.Console
	MaxRecord    int // bytes of a line
	DrainTimeout time.Duration
	DryRun       bool
	Named        bool   // outputs and inputs have names in a configuration file
	File         string // the configuration file, as messages name it; "": none

	saidDrops bool // that --when-full drops although there is a spool
}

// A keyError is an error of a key of an input or an output. Its text has the place in the
// configuration file, and the path of the key.
type keyError struct{ text string }

func (e *keyError) Error() string { return e.text }

func IsKeyError(err error) bool {
	var ke *keyError
	return errors.As(err, &ke)
}

// KeyError returns an error of the value of a key, or of the flag that is called so. of is the
// input or output as the configuration file calls it.
func (e *Env) KeyError(of, key, value string, at dest.Positions, text string) error {
	if !e.Named {
		return fmt.Errorf("--%s %s: %s", key, value, text)
	}
	if !strings.Contains(text, value) {
		text = value + ": " + text
	}
	place := ""
	if e.File != "" && at[key] != "" {
		place = e.File + ":" + at[key] + ": "
	}
	return &keyError{place + of + "." + key + ": " + text}
}

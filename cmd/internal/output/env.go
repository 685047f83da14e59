package output

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
)

// An Env contains settings that all outputs and inputs of a pipeline have in common.
type Env struct {
	Console      *console.Console
	MaxRecord    int // maximum length of a line in bytes
	DrainTimeout time.Duration
	DryRun       bool
	Named        bool   // outputs and inputs have names, because they are from a configuration file
	File         string // path of the configuration file, for messages; "" without one

	warnedDrops bool // the warning that --when-full drops lines despite a spool was printed
}

// A keyError is an error about a key of an input or output. The text begins with the position and
// the path of the key in the configuration file.
type keyError struct{ text string }

func (e *keyError) Error() string { return e.text }

// IsKeyError reports whether err contains a position in the configuration file.
func IsKeyError(err error) bool {
	var ke *keyError
	return errors.As(err, &ke)
}

// KeyError returns an error about the value of a key, or of the flag with the same name. owner is
// the path of the input or output, such as outputs.loki. at contains the positions of its keys.
func (e *Env) KeyError(owner, key, value string, at dest.Positions, text string) error {
	text = console.WriteRemedy(text)
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
	return &keyError{place + owner + "." + key + ": " + text}
}

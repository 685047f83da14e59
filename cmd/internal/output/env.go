package output

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
)

// An Env contains the data that the outputs and inputs of a pipeline share.
type Env struct {
	Console      *console.Console
	MaxRecord    int // maximum length of a line in bytes
	DrainTimeout time.Duration
	DryRun       bool
	Named        bool   // whether outputs and inputs have names, from a configuration file
	File         string // the configuration file, for messages; "": none

	saidDrops bool // whether the warning was printed that --when-full drops lines in spite of a spool
}

// A keyError is an error about a key of an input or an output. Its text contains the position in
// the configuration file and the path of the key.
type keyError struct{ text string }

func (e *keyError) Error() string { return e.text }

func IsKeyError(err error) bool {
	var ke *keyError
	return errors.As(err, &ke)
}

// KeyError returns an error about the value of a key, or of the flag with the same name. of is the
// input or output, in the words of the configuration file.
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

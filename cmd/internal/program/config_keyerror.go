package program

import (
	"errors"
	"fmt"
	"strings"
)

// A keyError is an error of a key of an input or an output. Its text has the place in the
// configuration file, and the path of the key.
type keyError struct{ text string }

func (e *keyError) Error() string { return e.text }

func isKeyError(err error) bool {
	var ke *keyError
	return errors.As(err, &ke)
}

// keyError returns an error of the value of a key, or of the flag that is called so. of is the
// input or output as the configuration file calls it.
func (p *pipeline) keyError(of, key, value string, at positions, text string) error {
	if !p.c.named {
		return fmt.Errorf("--%s %s: %s", key, value, text)
	}
	if !strings.Contains(text, value) {
		text = value + ": " + text
	}
	place := ""
	if p.changes != nil && at[key] != "" {
		place = p.changes.file + ":" + at[key] + ": "
	}
	return &keyError{place + of + "." + key + ": " + text}
}

// placeError says of an error of an output's files which key names them. There may be several,
// each on a line.
func (p *pipeline) placeError(out *output, err error) error {
	c := out.c
	var errs []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		known := false
		for _, k := range []struct {
			key   string
			value string
			front string
		}{
			{"dead-letter", c.Text("dead-letter"), "deliver: cannot open DeadLetterFile: deliver: "},
			{"spool", c.Text("spool"), "deliver: cannot open SpoolDir: spool: "},
			{"crash-safe", c.Text("crash-safe"), "slab: cannot make the directory"},
			{"crash-safe", c.Text("crash-safe"), "slab: cannot have crash-safe slabs"},
		} {
			rest, is := strings.CutPrefix(line, k.front)
			if !is {
				continue
			}
			if k.key == "crash-safe" {
				rest = slabText(errors.New(line))
			}
			known = true
			errs = append(errs, p.keyError("outputs."+c.name, k.key, k.value, c.at, rest))
			break
		}
		switch {
		case known:
		case p.c.named:
			errs = append(errs, fmt.Errorf("output %s: %s", out.to, line))
		default:
			errs = append(errs, errors.New(line))
		}
	}
	return errors.Join(errs...)
}

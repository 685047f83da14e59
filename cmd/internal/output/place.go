package output

import (
	"errors"
	"fmt"
	"strings"
)

// placeError adds to each line of err the key that names the file. Each line is about a file of the
// output.
func (out *Output) placeError(err error) error {
	c := out.Spec
	var errs []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		known := false
		for _, k := range []struct {
			key   string
			value string
			front string
		}{
			{"dead-letter", c.Text("dead-letter"), "deliver: cannot open DeadLetterFile: "},
			{"spool", c.Text("spool"), "deliver: cannot open SpoolDir: spool: "},
			{"crash-safe", c.Text("crash-safe"), "slab: cannot make directory"},
			{"crash-safe", c.Text("crash-safe"), "slab: cannot have crash-safe slabs"},
		} {
			rest, is := strings.CutPrefix(line, k.front)
			if !is {
				continue
			}
			if k.key == "crash-safe" {
				rest = strings.TrimPrefix(line, "slab: ")
			}
			known = true
			errs = append(errs, out.Env.KeyError("outputs."+c.Name, k.key, k.value, c.At, rest))
			break
		}
		switch {
		case known:
		case out.Env.Named:
			errs = append(errs, fmt.Errorf("output %s: %s", out.To, line))
		default:
			errs = append(errs, errors.New(line))
		}
	}
	return errors.Join(errs...)
}

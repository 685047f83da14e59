package dest

import (
	"errors"
	"fmt"
	"os"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/internal/stdio"
)

// stdioDest is the destination stdout: or stderr:.
type stdioDest struct{ name, what string }

func (d stdioDest) Scheme() string             { return d.name }
func (d stdioDest) Usage() (form, what string) { return d.name + ":", d.what }
func (d stdioDest) Open(rest string, _ *Spec) (*Target, error) {
	if rest != "" {
		return nil, errors.New("text follows the colon: write " + d.name + ":")
	}
	f := os.Stdout
	if d.name == "stderr" {
		f = os.Stderr
	}
	s := stdio.New(f, d.name)
	if s.Check() != nil {
		return nil, fmt.Errorf("%s is closed or not writable (use --to file:/dev/null to discard lines)", d.what)
	}
	info, _ := f.Stat()
	return &Target{Dest: s, File: info, Gone: s.Gone(), Tty: console.IsTerminal(f)}, nil
}

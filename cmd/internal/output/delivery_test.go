package output

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
)

// The message about a full disk of the spool names the directory and the remedy.
func TestSpoolErrorHasARemedy(t *testing.T) {
	spec := dest.NewSpec()
	if err := spec.ByName["spool"].Set("dir"); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	out := &Output{Spec: &spec, Env: &Env{Console: &console.Console{W: &b, Name: "forebay"}}}
	out.deliveryEvent(batch.Event{Output: "loki", Op: "spill-error", Err: fmt.Errorf("spool: cannot append to s1: %w", syscall.ENOSPC)})
	want := fmt.Sprintf("forebay: loki: --spool dir: cannot append to s1: %v; free some space there; retrying\n", syscall.ENOSPC)
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// If an error begins with the name of the output, the message has the name once.
func TestOutputIsNamedOnce(t *testing.T) {
	spec := dest.NewSpec()
	var b bytes.Buffer
	out := &Output{To: "tcp://h:1", Spec: &spec, Env: &Env{Console: &console.Console{W: &b, Name: "forebay"}}}
	out.deliveryEvent(batch.Event{Output: "tcp://h:1", Op: "send", Err: errors.New("netsink: tcp://h:1: broken pipe")})
	if want := "forebay: tcp://h:1: broken pipe; retrying\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

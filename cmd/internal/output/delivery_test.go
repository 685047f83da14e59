package output

import (
	"bytes"
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

//go:build unix

package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/tool"
)

// If an output is removed from the configuration while its spool contains records, each start
// reports where the records are and how to deliver them. The reports end when the records are
// delivered or purged. The program deletes no records.
func TestSpoolOfAnOutputThatIsGone(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const in = "drain-timeout: 200ms\ninputs: {in: {type: tail, files: DIR/in.log, state: DIR/state, from: start}}\noutputs:\n"
	const gone = "  gone: {to: \"tcp://127.0.0.1:1\", spool: DIR/spool}\n"
	const here = "  here: {to: \"file:DIR/here.log\"}\n"
	r := &runningConfig{t: t, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(r.dir, "in.log"), []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(outputs string) string {
		t.Helper()
		r.begin(in + outputs)
		r.await("the start", func() bool { return strings.Contains(r.read("here.log"), "two") })
		messages, _ := r.end()
		return messages
	}
	r.begin(in + gone + here)
	r.await("the spool", func() bool {
		files, _ := filepath.Glob(filepath.Join(r.dir, "spool", "*", "*"))
		return strings.Contains(r.read("here.log"), "two") && len(files) > 1 && strings.Contains(r.messages.String(), "is down; lines go to")
	})
	if messages, err := r.end(); exit.Code(err) != exit.KeptCode {
		t.Fatal(err, messages)
	}
	spool := filepath.Join(r.dir, "spool", dest.SafeName("gone"))
	want := "2 records wait in " + spool + ", the spool of an output that is no longer configured: list them with forebay spool ls, deliver them with forebay spool replay"
	for _, outputs := range []string{
		here + "  other: {to: \"stdout:\", level: fatal, spool: DIR/spool}\n", // another output uses the directory
		here, // no output uses the directory
		here,
	} {
		if messages := run(outputs); strings.Count(messages, want) != 1 {
			t.Errorf("with\n%s%s\nwant %s", outputs, messages, want)
		}
	}
	if messages := run(here + gone); strings.Contains(messages, want) || !strings.Contains(messages, "delivering 2 records of an earlier run first") {
		t.Error(messages)
	}
	// If the output is removed while the program runs, the next start reports the records, too.
	r.begin(in + here + gone)
	r.await("the start", func() bool { return strings.Contains(r.messages.String(), "earlier run") })
	if messages := r.change(in + here); !strings.Contains(messages, "2 records remain in") {
		t.Error(messages)
	}
	r.end()
	if messages := run(here); strings.Count(messages, want) != 1 {
		t.Error(messages)
	}
	cmd := tool.NewSpoolCmd()
	cmd.SetArgs([]string{"purge", spool, "--yes"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if messages := run(here); strings.Contains(messages, "wait in") {
		t.Error(messages)
	}
}

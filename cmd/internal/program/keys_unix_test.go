//go:build unix

package program

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/cmd/internal/control"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/cmd/internal/tool"
)

// A change of the configuration closes a fallback that no output uses any more, and does not close
// one that is still used.
func TestUnusedFallbackIsClosed(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const in = "inputs: {in: {type: tail, files: DIR/in.log}}\noutputs:\n"
	r := startRun(t, in+"  a: {to: \"file:DIR/a\", fallback: \"file:DIR/f\"}\n  b: {to: \"file:DIR/b\", fallback: \"file:DIR/f\"}\n")
	r.await("the start", func() bool { r.p.Mu.Lock(); defer r.p.Mu.Unlock(); return r.p.Live > 0 && len(r.p.Inlets) == 1 })
	r.p.Mu.Lock()
	var shared *dest.Fallback
	for _, f := range r.p.Fallbacks {
		shared = f
	}
	r.p.Mu.Unlock()
	if shared == nil {
		t.Fatal("there is none")
	}
	r.change(in + "  a: {to: \"file:DIR/a\"}\n  b: {to: \"file:DIR/b\", fallback: \"file:DIR/f\"}\n")
	if err := shared.Target.Reopen(); err != nil {
		t.Error("one that an output has is closed: ", err)
	}
	r.change(in + "  a: {to: \"file:DIR/a\"}\n  b: {to: \"file:DIR/b\"}\n")
	if err := shared.Target.Reopen(); !errors.Is(err, os.ErrClosed) {
		t.Error("one that no output has is open: ", err)
	}
	if n := len(r.p.Fallbacks); n != 0 {
		t.Error(n, "are there")
	}
	if messages := r.change(in + "  a: {to: \"file:DIR/a\", fallback: \"file:DIR/f\"}\n  b: {to: \"file:DIR/b\"}\n"); !strings.Contains(messages, ": applied: ") {
		t.Error(messages)
	}
	if messages, err := r.end(); err != nil {
		t.Error(err, messages)
	}
}

// The contents of files with keys, passwords and certificates are part of the configuration. If the
// content of a file changes, only the inputs and outputs that use the file change.
func TestNewKeyChangesItsOutputs(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r := &runningConfig{t: t, dir: t.TempDir()}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"key", "pass", "outkey", "lokipass"} {
		write(name, "one\n")
	}
	newAuthority(t, r.dir)
	const text = `
inputs:
  fwd: {type: forward, listen: "127.0.0.1:0", shared-key-file: DIR/key, user: u, password-file: DIR/pass}
  other: {type: forward, listen: "127.0.0.1:0"}
outputs:
  f: {to: "forward://127.0.0.1:1", shared-key-file: DIR/outkey}
  l: {to: "loki+https://127.0.0.1:1", user: u, password-file: DIR/lokipass, tls-ca: DIR/ca.pem}
  same: {to: "file:DIR/same"}
`
	r.begin(text)
	r.await("the start", func() bool { r.p.Mu.Lock(); defer r.p.Mu.Unlock(); return len(r.p.Inlets) == 2 })
	if messages := r.change(text); !strings.Contains(messages, "nothing has changed") {
		t.Error(messages)
	}
	for name, part := range map[string]string{"key": "input fwd", "pass": "input fwd", "outkey": "output f", "lokipass": "output l", "ca": "output l"} {
		if name == "ca" {
			newAuthority(t, r.dir)
		} else {
			write(name, "two\n")
		}
		messages := r.change(text)
		messages = messages[strings.Index(messages, ": applied: ")+1:]
		if !strings.HasPrefix(messages, " applied: ") || strings.Count(messages, "input ")+strings.Count(messages, "output ") != 1 || !strings.Contains(messages, part) || strings.Contains(messages, "two") {
			t.Errorf("%s: %s", name, messages)
		}
	}
	r.end()
}

// After the recovery of a spool at startup, forebay top and forebay spool ls show the size of the
// spool on disk.
func TestSpoolBytesAfterRecovery(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const text = "drain-timeout: 200ms\ninputs: {in: {type: tail, files: DIR/in.log, state: DIR/state, from: start}}\n" +
		"outputs:\n  a: {to: \"tcp://127.0.0.1:1\", spool: DIR/spool}\n"
	r := &runningConfig{t: t, dir: t.TempDir()}
	dir := filepath.Join(r.dir, "spool", dest.SafeName("a"))
	if err := os.WriteFile(filepath.Join(r.dir, "in.log"), []byte(strings.Repeat("a line of a log\n", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	onDisk := func() (n int64) {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".seg") {
				if st, err := d.Info(); err == nil {
					n += st.Size()
				}
			}
			return nil
		})
		return n
	}
	var shown int64
	for range 3 {
		r.begin(text)
		r.await("the spool", func() bool {
			r.p.Mu.Lock()
			ready := len(r.p.Inlets) == 1
			r.p.Mu.Unlock()
			var s control.State
			if ready {
				run.View{P: r.p}.Describe(&s)
			}
			if len(s.Outputs) == 0 || s.Outputs[0].Spool == nil || s.Outputs[0].Spool.Records != 10_000 {
				return false
			}
			shown = s.Outputs[0].Spool.Bytes
			return true
		})
		l, _, err := tool.ListDir(tool.SpoolDir{Dir: dir, Segments: true}, false)
		if disk := onDisk(); err != nil || shown != disk || l.Bytes != disk || l.Pending != 10_000 || disk < 160_000 {
			t.Errorf("top shows %d bytes, spool ls %d of %d records, and there are %d; %v", shown, l.Bytes, l.Pending, disk, err)
		}
		r.end()
	}
}

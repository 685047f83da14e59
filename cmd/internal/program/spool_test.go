package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/tool"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/spool"
)

// runSpool runs forebay spool with args. It returns the standard output, the messages and the exit
// code. open replaces the function that opens the destination of a replay, unless it is nil.
func runSpool(t *testing.T, open tool.ReplayOpener, args ...string) (out, errs string, code int) {
	t.Helper()
	if open == nil {
		open = tool.OpenReplay
	}
	cmd := tool.NewSpool(open)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		stderr.WriteString(err.Error())
	}
	return stdout.String(), stderr.String(), exit.Code(err)
}

// fillSpool creates a spool with three batches. The first two contain three JSON records in total,
// and the third contains a text line.
func fillSpool(t *testing.T, dir string) {
	t.Helper()
	s, err := diskqueue.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	add := func(c batch.Codec, lines ...string) {
		b := batch.Batch{Codec: c}
		for _, l := range lines {
			b.Append([]byte(l+"\n"), 0, batch.Meta{})
		}
		if _, err := s.Append(&b); err != nil {
			t.Fatal(err)
		}
	}
	add(encode.JSON(nil).Codec(), `{"msg":"one"}`, `{"msg":"two"}`)
	add(encode.JSON(nil).Codec(), `{"msg":"three"}`)
	add(encode.RawCodec(), `plain "four"`)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

const (
	spoolAsJSON = "{\"msg\":\"one\"}\n{\"msg\":\"two\"}\n{\"msg\":\"three\"}\n{\"raw\":\"plain \\\"four\\\"\"}\n"
	spoolAsIs   = "{\"msg\":\"one\"}\n{\"msg\":\"two\"}\n{\"msg\":\"three\"}\nplain \"four\"\n"
)

func TestSpoolLsAndCatChangeNothing(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "file_app.log")
	fillSpool(t, dir)
	// spool ls lists a spool that is in use, and also accepts its parent directory.
	s, err := diskqueue.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, d := range []string{dir, parent} {
		out, errs, code := runSpool(t, nil, "ls", d)
		if code != 0 || !strings.Contains(out, "4 pending records of ") || !strings.Contains(out, "in 2 files") ||
			!strings.Contains(out, "00000001.seg  2        3        3") || !strings.Contains(out, encode.JSON(nil).Codec().ContentType()+"  ok") {
			t.Errorf("ls: %d\n%s%s", code, out, errs)
		}
		if out, errs, code := runSpool(t, nil, "cat", d); code != 0 || out != spoolAsJSON {
			t.Errorf("cat: %d\n%s%s", code, out, errs)
		}
		if out, errs, code := runSpool(t, nil, "cat", "--raw", d); code != 0 || out != spoolAsIs {
			t.Errorf("cat --raw: %d\n%s%s", code, out, errs)
		}
		out, errs, code = runSpool(t, nil, "verify", d)
		if code != 0 || !strings.Contains(out, "00000002.seg: 1 record in 1 batch: ok\n") || !strings.Contains(out, "3 records in 2 batches: ok") {
			t.Errorf("verify: %d\n%s%s", code, out, errs)
		}
		out, _, code = runSpool(t, nil, "ls", "-o", "json", d)
		var ls []tool.SpoolListing
		if err := json.Unmarshal([]byte(out), &ls); err != nil || code != 0 || len(ls) != 1 || ls[0].Pending != 4 || len(ls[0].Files) != 2 {
			t.Errorf("ls -o json: %v\n%s", err, out)
		}
	}
	if out, _, _ := runSpool(t, nil, "ls", dir); strings.Contains(out, "dead") {
		t.Errorf("there is no dead letter:\n%s", out)
	}
	letters := filepath.Join(dir, dest.DeadLetterName)
	if err := os.WriteFile(letters, []byte("{}\n{}\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, code := runSpool(t, nil, "ls", dir); code != 0 || !strings.Contains(out, "\n"+letters+": 3 dead letters, which are not delivered again\n") {
		t.Errorf("ls with dead letters: %d\n%s", code, out)
	}
	if out, _, code := runSpool(t, nil, "ls", "-o", "json", dir); code != 0 || !strings.Contains(out, `"dead_letters": 3`) {
		t.Errorf("ls -o json with dead letters: %d\n%s", code, out)
	}
	if _, errs, code := runSpool(t, nil, "replay", dir, "--to", "stdout:"); code != exit.ConfigCode || !strings.Contains(errs, "locked by this process") {
		t.Errorf("replay beside its owner: %d %s", code, errs)
	}
	if _, errs, code := runSpool(t, nil, "purge", dir, "--yes"); code != exit.RuntimeCode || !strings.Contains(errs, "locked by this process") {
		t.Errorf("purge beside its owner: %d %s", code, errs)
	}
}

func TestSpoolVerifyFindsDamage(t *testing.T) {
	dir := t.TempDir()
	fillSpool(t, dir)
	name := filepath.Join(dir, "00000001.seg")
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p[len(p)-3] ^= 1
	if err := os.WriteFile(name, p, 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := runSpool(t, nil, "verify", dir)
	if code != exit.RuntimeCode || !strings.Contains(out, "damaged at byte ") || !strings.Contains(out, "1 record lost") || !strings.Contains(errs, "1 of 2 files are damaged") {
		t.Errorf("verify: %d\n%s%s", code, out, errs)
	}
	out, errs, code = runSpool(t, nil, "cat", dir)
	if code != exit.RuntimeCode || !strings.Contains(out, "two") || strings.Contains(out, "three") || !strings.Contains(out, "four") || !strings.Contains(errs, "00000001.seg: offset ") {
		t.Errorf("cat: %d\n%s%s", code, out, errs)
	}
	to := filepath.Join(t.TempDir(), "out")
	_, errs, code = runSpool(t, nil, "replay", dir, "--to", "file:"+to)
	if code != exit.RuntimeCode || !strings.Contains(errs, "3 records delivered, 0 left, 1 unreadable") {
		t.Errorf("replay: %d\n%s", code, errs)
	}
	out, _, _ = runSpool(t, nil, "ls", dir)
	if !strings.Contains(out, "00000001.seg.corrupt") || !strings.Contains(out, "damaged, set aside") {
		t.Errorf("ls:\n%s", out)
	}
	if _, errs, code := runSpool(t, nil, "verify", dir); code != exit.RuntimeCode {
		t.Errorf("verify: %d %s", code, errs)
	}
	if out, errs, code := runSpool(t, nil, "purge", "--damaged", "--yes", dir); code != 0 || !strings.Contains(out, "deleted 1 file") {
		t.Errorf("purge: %d\n%s%s", code, out, errs)
	}
	if out, errs, code := runSpool(t, nil, "verify", dir); code != 0 || out != "" {
		t.Errorf("verify: %d %s%s", code, out, errs)
	}
}

func TestSpoolReplayKeepsUndelivered(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "out.log")
	fillSpool(t, dir)
	_, errs, code := runSpool(t, nil, "replay", dir, "--to", "file:"+to)
	if code != 0 || !strings.Contains(errs, "4 records delivered, 0 left") {
		t.Fatalf("%d %s", code, errs)
	}
	if got, err := os.ReadFile(to); err != nil || string(got) != spoolAsIs {
		t.Errorf("%s, %v", got, err)
	}
	if _, errs, code := runSpool(t, nil, "replay", dir, "--to", "file:"+to); code != 0 || !strings.Contains(errs, "0 records delivered") {
		t.Errorf("%d %s", code, errs)
	}

	// If the destination fails, the undelivered records remain in the spool.
	fillSpool(t, dir)
	sends, closed := 0, false
	broken := func(*dest.Spec, []dest.Destination) (*tool.ReplayTarget, error) {
		send := func(context.Context, *batch.Batch) batch.Outcome {
			if sends++; sends > 1 {
				return batch.FailedOutcome(errors.New("connection refused"))
			}
			return batch.Outcome{}
		}
		return &tool.ReplayTarget{Send: send, Close: func() error { closed = true; return nil }}, nil
	}
	_, errs, code = runSpool(t, broken, "replay", dir, "--to", "stdout:")
	if code != exit.KeptCode || !strings.Contains(errs, "2 records delivered, 2 left") || !strings.Contains(errs, "connection refused") || !closed {
		t.Errorf("%d %s", code, errs)
	}
	if out, _, _ := runSpool(t, nil, "cat", "--raw", dir); out != "{\"msg\":\"three\"}\nplain \"four\"\n" {
		t.Errorf("left: %s", out)
	}
}

func TestSpoolPurgeNeedsYes(t *testing.T) {
	dir := t.TempDir()
	fillSpool(t, dir)
	out, errs, code := runSpool(t, nil, "purge", dir)
	if code != exit.UsageCode || !strings.Contains(out, "would delete 2 files with 4 pending records") || !strings.Contains(errs, "--yes") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if out, _, _ := runSpool(t, nil, "cat", dir); out != spoolAsJSON {
		t.Error("purge without --yes deleted something")
	}
	if out, errs, code := runSpool(t, nil, "purge", dir, "--yes"); code != 0 || !strings.Contains(out, "deleted 2 files") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if out, _, code := runSpool(t, nil, "purge", dir, "--yes"); code != 0 || !strings.Contains(out, "deleted 0 files") {
		t.Errorf("%d %s", code, out)
	}
}

// spool cat prints records for Loki and Fluentd with the metadata that their codecs decode.
func TestSpoolCatPrintsEveryFormat(t *testing.T) {
	dir := t.TempDir()
	for _, wire := range []string{"protobuf", "json"} {
		sink, err := loki.New(loki.Config{URL: "http://localhost", Wire: wire, Labels: map[string]string{"job": "x-" + wire}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := diskqueue.Open(dir, &spool.Options{Streams: sink.Traits().Dictionary})
		if err != nil {
			t.Fatal(err)
		}
		rec, m, err := sink.AppendLine(nil, time.Unix(1, 0), 0, []byte("hello"), nil)
		if err != nil {
			t.Fatal(err)
		}
		b := batch.Batch{Codec: sink.Encoder().Codec()}
		b.Append(rec, 0, m)
		if _, err := s.Append(&b); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := runSpool(t, nil, "cat", dir)
	lines := strings.Split(out, "\n")
	if code != 0 || len(lines) != 3 {
		t.Fatalf("%d %s%s", code, out, errs)
	}
	for i, wire := range []string{"protobuf", "json"} {
		if !strings.Contains(lines[i], `x-`+wire) || !strings.Contains(lines[i], "hello") {
			t.Errorf("%s: %s", wire, lines[i])
		}
	}
}

func TestSpoolCommandsHaveHelp(t *testing.T) {
	var out bytes.Buffer
	cmd := tool.NewSpoolCmd()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ls ", "cat ", "verify ", "replay ", "purge ", "--spool"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help does not say %q:\n%s", want, &out)
		}
	}
}

func TestSpoolMistakesAreUsageErrors(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"ls"}, exit.UsageCode, "one spool directory"},
		{[]string{"ls", "a", "b"}, exit.UsageCode, "one spool directory"},
		{[]string{"ls", empty}, exit.ConfigCode, "there is no spool here"},
		{[]string{"cat", filepath.Join(empty, "none")}, exit.ConfigCode, "no such file"},
		{[]string{"verify", empty}, exit.ConfigCode, "there is no spool here"},
		{[]string{"replay", empty}, exit.UsageCode, "--to is missing"},
		{[]string{"replay", empty, "--to", "stdout:"}, exit.ConfigCode, "there is no spool here"},
		{[]string{"dump", empty}, exit.UsageCode, "dump"},
	} {
		if _, errs, code := runSpool(t, nil, c.args...); code != c.code || !strings.Contains(errs, c.say) {
			t.Errorf("%v: %d %s", c.args, code, errs)
		}
	}
	fillSpool(t, empty)
	if _, errs, code := runSpool(t, nil, "replay", empty, "--to", "nowhere:"); code != exit.ConfigCode || !strings.Contains(errs, `"nowhere"`) {
		t.Errorf("%d %s", code, errs)
	}
}

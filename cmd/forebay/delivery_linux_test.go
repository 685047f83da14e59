package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What was read is there after SIGKILL, with --crash-safe.
func TestCrashSafe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	args := []string{"pipe", "--to", "file:" + path, "--crash-safe", filepath.Join(dir, "crash")}
	p := start(t, append(args, "--to", "file:"+filepath.Join(dir, "beside"))...)
	p.write("one\ntwo\n")
	await(t, filepath.Join(dir, "beside"), "one\ntwo\n") // so that they are in all slabs
	p.signal(syscall.SIGKILL)
	p.wait()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p = start(t, args...)
	p.write("three\n")
	p.in.Close()
	code, stderr := p.wait()
	if got, _ := os.ReadFile(path); code != 0 || string(got) != "one\ntwo\nthree\n" {
		t.Errorf("exit code %d, file %q", code, got)
	}
	wantMatch(t, stderr, `accepted=1 recovered=2 delivered=3$`)
}

// A second signal stops trying; what is left goes into the spool all the same.
func TestForcedEndSpools(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "pipe", "--to", "file:/dev/full", "--spool", filepath.Join(dir, "spool"), "--to", "file:"+filepath.Join(dir, "beside"))
	p.write("one\ntwo\n")
	await(t, filepath.Join(dir, "beside"), "one\ntwo\n")
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGINT)
	code, stderr := p.wait()
	if code != exitKept {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	wantMatch(t, stderr, `file:/dev/full accepted=2 delivered=0 pending=2\{slab=0 spill=2 inflight=0\}`)
}

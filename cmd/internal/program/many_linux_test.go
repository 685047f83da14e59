//go:build !race

package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ten thousand files, of which a hundred grow, are read completely with at most 64 MiB of memory.
func TestManyFilesNeedLittleMemory(t *testing.T) {
	const all, busy, rounds, maxKiB = 10_000, 100, 5, 64 << 10 // maxKiB is in KiB
	dir := t.TempDir()
	logs, out := filepath.Join(dir, "logs"), filepath.Join(dir, "out")
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	name := func(i int) string { return filepath.Join(logs, fmt.Sprintf("shop-%05d.log", i)) }
	first := []byte("the first line of each of them\n")
	for i := range all {
		if err := os.WriteFile(name(i), first, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, "tail", "-q", "--from", "start", "--state", filepath.Join(dir, "state"), "--to", "file:"+out, filepath.Join(logs, "*.log"))
	await := func(size int64) {
		t.Helper()
		var got int64
		for end := time.Now().Add(5 * time.Minute); got != size; time.Sleep(20 * time.Millisecond) {
			if st, err := os.Stat(out); err == nil {
				got = st.Size()
			}
			if time.Now().After(end) {
				t.Fatalf("got %d bytes, want %d: %s", got, size, p.stderr.String())
			}
		}
	}
	await(int64(all * len(first)))
	text := []byte(strings.Repeat("a line of one of those that are busy, as long as many are, with this and that in it\n", 100))
	for range rounds {
		for i := range busy {
			f, err := os.OpenFile(name(i*all/busy), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.Write(text)
				f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	await(int64(all*len(first) + rounds*busy*len(text)))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	var kib int
	if _, err := fmt.Sscanf(peak, "%d kB", &kib); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	if code, stderr := p.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	t.Logf("%d KiB at most", kib)
	if kib > maxKiB {
		t.Errorf("%d KiB, want at most %d", kib, maxKiB)
	}
}

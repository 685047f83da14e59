package program

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// While the program writes a large file, disk space is reserved after the end of the file. It is
// released when the program exits. With --no-reserve, no space is reserved.
func TestReservedSpaceIsReleased(t *testing.T) {
	t.Parallel()
	const ext4, large, some = 0xEF53, 12 << 20, 1 << 20
	dir := t.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Type != ext4 {
		t.Skip("the directory for temporary files is not on ext4")
	}
	for _, flags := range [][]string{{}, {"--no-reserve"}} {
		path := filepath.Join(dir, "x"+strings.Join(flags, ""))
		// look returns the size of the file, and whether disk space is reserved after its end.
		look := func() (size int64, reserved bool) {
			var st syscall.Stat_t
			if err := syscall.Stat(path, &st); err != nil {
				return 0, false
			}
			return st.Size, st.Blocks*512-st.Size > some
		}
		p := start(t, append([]string{"pipe", "--to", "file:" + path}, flags...)...)
		p.write(strings.Repeat(strings.Repeat("x", 127)+"\n", large/128))
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if size, reserved := look(); size == large {
				if reserved != (len(flags) == 0) {
					t.Errorf("%v: reserved: %v", flags, reserved)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("not written")
			}
		}
		p.in.Close()
		if code, stderr := p.wait(); code != 0 {
			t.Errorf("exit code %d, %s", code, stderr)
		}
		if size, reserved := look(); size != large || reserved {
			t.Errorf("%v: %d bytes, reserved: %v", flags, size, reserved)
		}
		os.Remove(path)
	}
}

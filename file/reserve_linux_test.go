package file

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/stdio"
	"github.com/forebay-log/forebay/internal/testkit"
)

// onExt4 returns the path of a file on ext4, where space can be reserved. If the directory for
// temporary files is on another file system, it skips the test.
func onExt4(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.log")
	h, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if !reservable(h) {
		t.Skip("SKIPPED: the directory for temporary files is not on ext4")
	}
	return path
}

// fill writes n bytes of lines, rounded down to a multiple of 64 KiB.
func fill(t *testing.T, w io.Writer, n int) {
	t.Helper()
	for range n / len(lines) {
		write(t, w, lines)
	}
}

// reserved returns the approximate number of bytes allocated after the end of the file. The number
// includes some metadata of the file system.
func reserved(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks*512 - st.Size
}

// wantReserved requires that space is reserved after the end of the file at path if want is true,
// and that none is if want is false.
func wantReserved(t *testing.T, path string, want bool) {
	t.Helper()
	n := reserved(t, path)
	if got := n > reserveSlack; got != want || n > reserveStep+reserveSlack {
		t.Helper()
		t.Errorf("%s: %d bytes after the end, want a reservation: %v", filepath.Base(path), n, want)
	}
}

// Space is reserved once the file has 8 MiB, and Close releases it. No space is reserved for
// smaller files, with NoReserve, for standard streams, or for an *os.File.
func TestReserve(t *testing.T) {
	path := onExt4(t)
	f := mustOpen(t, path, nil)
	fill(t, f, reserveAfter)
	wantReserved(t, path, false)
	for range 20 {
		fill(t, f, 1<<20)
		wantReserved(t, path, true)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantReserved(t, path, false)
	if got := content(t, path); got != strings.Repeat(lines, len(got)/len(lines)) || len(got) != reserveAfter+20<<20 {
		t.Error("the content of the file has changed")
	}
	f = mustOpen(t, path, nil)
	wantReserved(t, path, false)
	fill(t, f, len(lines)) // the existing file has more than 8 MiB
	wantReserved(t, path, true)
	f.Close()

	f = mustOpen(t, path, &Options{NoReserve: true})
	fill(t, f, len(lines))
	wantReserved(t, path, false)
	own, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for _, d := range []deliver.Destination{stdio.New(own, "own"), deliver.ToWriter(own)} {
		w, err := deliver.NewOutput(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, w, 1<<20)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		wantReserved(t, path, false)
	}
}

// The reservation of a file that rotates ends at the maximum size of the file. An old file has no
// reservation, however it was rotated.
func TestReserveRotating(t *testing.T) {
	path := onExt4(t)
	const limit = reserveAfter + 2<<20
	f := mustOpen(t, path, &Options{RotateBytes: limit})
	fill(t, f, reserveAfter+len(lines))
	wantReserved(t, path, true)
	if st, err := os.Stat(path); err != nil || reserved(t, path)+st.Size() > limit+reserveSlack {
		t.Errorf("%d bytes after the end of %d, %v", reserved(t, path), st.Size(), err)
	}
	if err := f.Rotate(); err != nil {
		t.Fatal(err)
	}
	fill(t, f, limit+len(lines))
	fill(t, f, reserveAfter+len(lines))
	wantReserved(t, path, true)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "x*.log"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		wantReserved(t, path, false)
	}
}

// Reopen releases the reservation of a file that was renamed.
func TestReserveReopen(t *testing.T) {
	path := onExt4(t)
	f := mustOpen(t, path, nil)
	fill(t, f, reserveAfter+len(lines))
	if err := f.Reopen(); err != nil { // opens the same file
		t.Fatal(err)
	}
	fill(t, f, len(lines))
	wantReserved(t, path, true)
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}
	wantReserved(t, path+".moved", false)
	fill(t, f, len(lines))
	wantFile(t, path, lines)
	wantReserved(t, path, false)
}

// Open releases the reservation left by a killed process. It keeps the modification time of the
// file.
func TestReserveCrash(t *testing.T) {
	path := onExt4(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FILE_TEST_FILL="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("full\n"))); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	wantReserved(t, path, true)
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(path, time.Time{}, old); err != nil {
		t.Fatal(err)
	}
	before := content(t, path)

	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path, nil).Close()
	wantReserved(t, path, true) // not released while another process has the file open
	reader.Close()
	mustOpen(t, path, &Options{NoReserve: true}).Close()
	wantReserved(t, path, true)
	mustOpen(t, path, nil)
	wantReserved(t, path, false)
	if st, err := os.Stat(path); err != nil || !st.ModTime().Equal(old) {
		t.Errorf("last written %v, want %v (%v)", st.ModTime(), old, err)
	}
	if content(t, path) != before {
		t.Error("the content of the file has changed")
	}
}

// Open and Close keep space that another program has reserved.
func TestReserveOfOthers(t *testing.T) {
	path := onExt4(t)
	own, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(own.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 40<<20); err != nil {
		t.Fatal(err)
	}
	own.Close()
	for range 3 {
		f := mustOpen(t, path, nil)
		fill(t, f, reserveAfter+len(lines))
		f.Close()
		if st, err := os.Stat(path); err != nil || st.Size()+reserved(t, path) < 40<<20 {
			t.Errorf("%d bytes after the end, %v", reserved(t, path), err)
		}
	}
}

// The release of a reservation removes no line that another program appends, whether that program
// keeps the file open or opens it for each line.
func TestReleaseBesideAppenders(t *testing.T) {
	rounds, released := testkit.Rounds(t, 300, 20_000), 0
	path := onExt4(t)
	if err := os.WriteFile(path, []byte(strings.Repeat(lines, reserveAfter/len(lines))), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wrote := make([]int, 2)
	const line = "of another program\n"
	appender := func() *os.File {
		h, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Error(err)
		}
		return h
	}
	for i := range wrote {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				h := appender()
				if h == nil {
					return
				}
				for range 1 + i*9 {
					if n, err := h.WriteString(line); err != nil {
						t.Error(n, err)
						return
					}
					wrote[i]++
				}
				h.Close()
				for range 300 * (i + 1) { // leaves moments at which the file is not open
					runtime.Gosched()
				}
			}
		})
	}
	for range rounds {
		h := appender()
		st, err := h.Stat()
		if err != nil {
			t.Fatal(err)
		}
		reserve(h, st.Size(), reserveStep)
		release(h)
		if reserved(t, path) < reserveStep/2 {
			released++
		}
		h.Close()
	}
	close(stop)
	wg.Wait()
	got := content(t, path)[reserveAfter:]
	if want := wrote[0] + wrote[1]; got != strings.Repeat(line, want) {
		t.Errorf("%d bytes of %d lines, want %d", len(got), strings.Count(got, line), want*len(line))
	}
	t.Logf("%d of %d reservations released, %v lines appended meanwhile", released, rounds, wrote)
	h := appender()
	defer h.Close()
	st, err := h.Stat()
	if err != nil {
		t.Fatal(err)
	}
	reserve(h, st.Size(), reserveStep)
	if release(h); reserved(t, path) > reserveSlack {
		t.Error("no other program has the file open, and it is not released")
	}
}

// Two Files with the same path both reserve and release space. Closing the last one leaves no
// reservation.
func TestReserveTwice(t *testing.T) {
	path := onExt4(t)
	a, b := mustOpen(t, path, nil), mustOpen(t, path, nil)
	for range 9 {
		fill(t, a, 1<<20)
		fill(t, b, 1<<20)
	}
	wantReserved(t, path, true)
	a.Close()
	wantReserved(t, path, true)
	fill(t, b, 1<<20)
	b.Close()
	wantReserved(t, path, false)
	if n := len(content(t, path)); n != 19<<20 {
		t.Errorf("%d bytes", n)
	}
}

// A program that follows the file reads each byte once, in order, and no zeros.
func TestReserveFollowed(t *testing.T) {
	path := onExt4(t)
	f := mustOpen(t, path, nil)
	tail, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2*len(lines))
	follow := func(want string) {
		t.Helper()
		if n, err := io.ReadFull(tail, buf[:len(want)]); err != nil || string(buf[:n]) != want {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if n, err := tail.Read(buf); n != 0 || err != io.EOF {
			t.Fatalf("%d bytes after the end, %v", n, err)
		}
	}
	for range 2 * reserveAfter / len(lines) {
		write(t, f, lines)
		follow(lines)
	}
	f.Close()
	follow("")
	f = mustOpen(t, path, nil)
	write(t, f, lines)
	follow(lines)
	tail.Close()
	f.Close()
	wantReserved(t, path, false)
}

// After a truncation of the file, reservation starts again at 8 MiB.
func TestReserveCopyTruncate(t *testing.T) {
	path := onExt4(t)
	f := mustOpen(t, path, nil)
	for range 2 {
		fill(t, f, reserveAfter+len(lines))
		wantReserved(t, path, true)
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		fill(t, f, reserveAfter-len(lines))
		wantReserved(t, path, false)
		fill(t, f, 8<<20)
		wantReserved(t, path, true)
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, f, len(lines))
	f.Close()
	wantFile(t, path, lines)
	wantReserved(t, path, false)
}

// If the disk refuses a reservation, records are written without one. The next attempt follows
// after reserveAgain more bytes.
func TestReserveRefused(t *testing.T) {
	path := onExt4(t)
	defer func(old func(int, uint32, int64, int64) error) { fallocate = old }(fallocate)
	for _, refusal := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EOPNOTSUPP, syscall.EINTR} {
		calls := 0
		fallocate = func(int, uint32, int64, int64) error { calls++; return refusal }
		f := mustOpen(t, path, nil)
		fill(t, f, reserveAfter+2*reserveAgain)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if calls < 2 || calls > 4 {
			t.Errorf("%v: %d calls of fallocate, want 2 to 4", refusal, calls)
		}
		os.Remove(path)
	}
}

// On a full disk, a write uses the reserved space before it fails. The test needs the right to
// mount a file system.
func TestReserveOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, 40<<20)
	path := filepath.Join(dir, "x.log")
	f := mustOpen(t, path, nil)
	fill(t, f, reserveAfter+len(lines))
	wantReserved(t, path, true)
	other, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = other.Write(bytes.Repeat([]byte("o"), 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	written, n := int64(reserveAfter+len(lines)), 0
	for err = nil; err == nil; {
		n, err = f.Write([]byte(lines))
		written += int64(n)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if written < reserveAfter+reserveStep {
		t.Errorf("%d bytes: the reserved space was not used", written)
	}
	if err := os.Remove(other.Name()); err != nil {
		t.Fatal(err)
	}
	write(t, f, lines[n:]) // the rest of the incomplete record
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantReserved(t, path, false)
	if st, err := os.Stat(path); err != nil || st.Size() != written+int64(len(lines)-n) {
		t.Errorf("%d bytes, want %d (%v)", st.Size(), written, err)
	}
}

// smallDisk returns the root of a mounted ext4 file system of size bytes. It skips the test if
// mkfs.ext4 or the right to mount is missing.
func smallDisk(t *testing.T, size int64) (dir string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	dir = t.TempDir()
	err := os.WriteFile(image, nil, 0o600)
	if err == nil {
		err = os.Truncate(image, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: %s: %v: %s", args[0], err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return dir
}

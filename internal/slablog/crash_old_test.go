//go:build linux || darwin

package slablog

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/crashfile"
)

// Files of earlier versions, in which DropOldest dropped single records, can be read. One file has
// a partly overwritten slab, whose remaining old records are delivered. The other file has
// tombstones of oversize records.
func TestFilesOfOverwrittenSlabs(t *testing.T) {
	for _, name := range []string{"overwritten", "tombstones"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, suffix := range []string{"", crashfile.BigSuffix} {
				unpack(t, filepath.Join("testdata", "crash-v1", name+crashfile.Suffix+suffix+".gz"), filepath.Join(dir, name+crashfile.Suffix+suffix))
			}
			want, err := os.ReadFile(filepath.Join("testdata", "crash-v1", name+".want"))
			if err != nil {
				t.Fatal(err)
			}
			im, err := crashfile.Read(filepath.Join(dir, name+crashfile.Suffix))
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("acked %d evicted %d holes %d unreturned %d\n", im.Acked, im.Evicted, im.Holes, im.Unreturned)
			var data strings.Builder
			for _, r := range im.Records {
				got += fmt.Sprintf("%d:%d\n", r.Ticket, numbers(t, string(r.Data))[0])
				data.Write(r.Data)
			}
			if got != string(want) {
				t.Errorf("read\n%swant\n%s", got, want)
			}
			recovered, s, _ := recoverEvents(t, dir)
			if recovered != data.String() || s.Recovered != uint64(len(im.Records)) || s.Recovery.DamagedFiles != 0 {
				t.Errorf("%d records recovered, want %d: %+v", s.Recovered, len(im.Records), s.Recovery)
			}
		})
	}
}

// unpack decompresses a file if it exists.
func unpack(t *testing.T, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

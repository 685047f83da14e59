package file

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// No file exceeds RotateBytes, even if slabs are larger, unless it consists of a single larger
// record. Each file begins and ends with a whole record, and its unused space is less than the next
// record needs.
func TestSlabsLargerThanFiles(t *testing.T) {
	for seed := range testkit.Walks(t, 20) {
		rng := testkit.Rand(seed)
		const limit = 2000
		dir := t.TempDir()
		f, err := Open(filepath.Join(dir, "app.log"), &Options{RotateBytes: limit})
		if err != nil {
			t.Fatal(err)
		}
		out, err := deliver.NewOutput(deliver.ToWriteCloser(f), &deliver.OutputOptions{Slab: slab.Options{WhenFull: slab.Block(), SlabBytes: 1 << 14, SlabCount: 4}})
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		longest := 0
		for i := range 300 {
			// A record of several lines stays together.
			rec := fmt.Sprintf("<%d\n%s\n>\n", i, strings.Repeat("x", rng.IntN(150)))
			if rng.IntN(100) == 0 {
				rec = fmt.Sprintf("<%d %s>\n", i, strings.Repeat("y", limit))
			}
			if len(rec) <= limit {
				longest = max(longest, len(rec))
			}
			want.WriteString(rec)
			if err := out.WriteRecord([]byte(rec), batch.Meta{Level: slog.LevelInfo}); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(filepath.Join(dir, "app*.log"))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(paths) // app-TIME.log sorts before app.log
		var got bytes.Buffer
		for i, path := range paths {
			text := content(t, path)
			got.WriteString(text)
			switch {
			case !strings.HasPrefix(text, "<") || !strings.HasSuffix(text, ">\n"):
				t.Errorf("seed %d: %s does not start and end with a record", seed, path)
			case len(text) > limit && strings.Count(text, "<") > 1:
				t.Errorf("seed %d: %s has %d bytes", seed, path, len(text))
			case i+1 < len(paths) && !strings.Contains(text+content(t, paths[i+1]), "y") && len(text)+longest <= limit:
				t.Errorf("seed %d: %s has only %d bytes", seed, path, len(text))
			}
		}
		if got.String() != want.String() {
			t.Fatalf("seed %d: records are missing, or out of order", seed)
		}
	}
}

// Room returns the number of bytes up to the limit of the file. If the file has no limit or cannot
// be rotated, Room returns math.MaxInt64.
func TestRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := mustOpen(t, path, nil)
	if f.Room() != math.MaxInt64 {
		t.Error("Room of a file without a limit is not math.MaxInt64")
	}
	path += "2"
	if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	f = mustOpen(t, path, &Options{RotateBytes: 10})
	if n := f.Room(); n != 5 { // minus the newline that ends the line of the earlier process
		t.Error(n)
	}
	for _, tt := range []struct {
		text string
		room int64
	}{{"a\n", 3}, {"ab\n", 10}, {"", 10}, {"a", 9}, {"0123456789", 10}, {"\n", 9}} {
		if _, err := f.Write([]byte(tt.text)); err != nil {
			t.Fatal(err)
		}
		if n := f.Room(); n != tt.room {
			t.Errorf("after %q: %d, want %d", tt.text, n, tt.room)
		}
	}
	unrotatable := mustOpenUnrotatable(t, path+"3", func(error) {})
	defer unrotatable.Close()
	for range 2 {
		if _, err := unrotatable.Write([]byte("12345678\n")); err != nil {
			t.Fatal(err)
		}
	}
	if unrotatable.Room() != math.MaxInt64 {
		t.Error("Room of a file that cannot be rotated is not math.MaxInt64")
	}
}

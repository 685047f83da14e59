//go:build unix

package spool_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/spool"
)

// A segment is deleted, or the directory is, while the spool is open. What is appended a second
// later is in a new segment, or fails while there is no directory: nothing is kept in a file
// that has no name.
func TestAppendToADeletedSegment(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "spool")
		s, err := spool.Open(dir, &spool.Options{OnEvent: func(batch.Event) {}})
		if err != nil {
			t.Fatal(err)
		}
		add := func(text string) error {
			var b batch.Builder
			b.Append([]byte(text), 0, batch.Meta{})
			_, err := s.Append(b.Batch(nil))
			return err
		}
		segments := func() []string {
			names, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
			return names
		}
		if err := add("one"); err != nil || len(segments()) != 1 {
			t.Fatal(err, segments())
		}
		if err := os.Remove(segments()[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := add("two"); err != nil || len(segments()) != 1 {
			t.Error(err, segments())
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := add("three"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		_ = s.Close()
		synctest.Wait()
	})
}

//go:build unix

package diskqueue_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/spool"
)

// deletedSpool is a spool whose files are deleted while it is open.
type deletedSpool struct {
	*testing.T
	dir string
	*diskqueue.Spool
	events chan batch.Event
}

func openDeleted(t *testing.T) *deletedSpool {
	g := &deletedSpool{T: t, dir: filepath.Join(t.TempDir(), "parent", "spool"), events: make(chan batch.Event, 10)}
	g.Spool = g.open()
	return g
}

func (g *deletedSpool) open() *diskqueue.Spool {
	g.Helper()
	s, err := diskqueue.Open(g.dir, &spool.Options{OnEvent: func(e batch.Event) { g.events <- e }})
	if err != nil {
		g.Fatal(err)
	}
	return s
}

func (g *deletedSpool) add(text string) error {
	var b batch.Batch
	b.Append([]byte(text), 0, batch.Meta{})
	_, err := g.Append(&b)
	return err
}

// lost checks that one event reported n records as lost, and that the spool still contains the
// records listed in the parameter left, and no others.
func (g *deletedSpool) lost(n uint64, left ...string) {
	g.Helper()
	synctest.Wait()
	var e batch.Event
	select {
	case e = <-g.events:
	default:
	}
	if c := (*spool.CorruptError)(nil); e.Op != "corrupt" || e.Count != n || !errors.As(e.Err, &c) || c.Records != n {
		g.Errorf("event %+v, want %d records lost", e, n)
	}
	st := g.Stats()
	if st.Records != uint64(len(left)) {
		g.Errorf("stats %+v", st)
	}
	if err := g.Account().Check(); err != nil {
		g.Error(err)
	}
	g.Rewind()
	for _, want := range left {
		b, _, err := g.Next()
		if err != nil {
			g.Fatal(err)
		}
		for _, r := range b.All() {
			if string(r.Data) != want {
				g.Errorf("%q, want %q", r.Data, want)
			}
		}
	}
	if _, _, err := g.Next(); !errors.Is(err, io.EOF) {
		g.Error(err)
	}
}

// If a segment or the directory of an open spool is deleted, the lost records are counted and
// reported. The spool continues to work, with its lock and its cursor.
func TestAppendAfterDeletion(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"segment":   func(dir string) error { return os.Remove(filepath.Join(dir, "00000001.seg")) },
		"directory": func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) },
		"moved":     func(dir string) error { return os.Rename(dir, dir+".old") },
		"emptied":   func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := openDeleted(t)
				if err := errors.Join(g.add("one"), g.add("two"), remove(g.dir)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if err := errors.Join(g.add("three"), g.add("four")); err != nil {
					t.Fatal(err)
				}
				g.lost(2, "three", "four")
				if _, err := diskqueue.Open(g.dir, nil); !errors.Is(err, spool.ErrLocked) {
					t.Error(err)
				}
				if err := errors.Join(g.Ack(3), g.Sync(), g.Close()); err != nil {
					t.Fatal(err)
				}
				s := g.open()
				if st := s.Stats(); st.Recovered != 1 || st.Damages != 0 {
					t.Errorf("after a restart: %+v", st)
				}
				_ = s.Close()
				synctest.Wait()
			})
		})
	}
}

// If the directory is deleted and another process creates and uses it, Append fails until that
// process has closed its spool and all its batches are acknowledged.
func TestAppendToTheDirectoryOfAnother(t *testing.T) {
	for _, used := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			g := openDeleted(t)
			if err := errors.Join(g.add("one"), os.RemoveAll(g.dir)); err != nil {
				t.Fatal(err)
			}
			other := &deletedSpool{T: t, Spool: g.open()}
			if used {
				if err := other.add("theirs"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			for range 2 {
				if err := g.add("two"); !errors.Is(err, spool.ErrLocked) {
					t.Error(err)
				}
			}
			if _, seq, err := other.Next(); (err == nil) != used || used && other.Ack(seq) != nil {
				t.Error(seq, err)
			}
			if err := errors.Join(other.Close(), g.add("three"), g.Account().Check()); err != nil {
				t.Error(err)
			}
			if st := g.Stats(); st.Records != 1 || st.Corrupt != 1 {
				t.Errorf("%+v", st)
			}
			_ = g.Close()
			synctest.Wait()
		})
	}
}

// If the directory is replaced by one with batches of another process, Append, Ack and Close
// neither overwrite its cursor nor delete its segments, which have the same names.
func TestFilesOfAnotherProcessAreKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := openDeleted(t)
		if err := errors.Join(g.add("one"), g.add("two"), g.add("three")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, err := g.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(g.Ack(2), os.Rename(g.dir, g.dir+".old")); err != nil {
			t.Fatal(err)
		}
		other := &deletedSpool{T: t, Spool: g.open()}
		if err := errors.Join(other.add("theirs"), other.Close()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for range 2 {
			if err := g.add("four"); err == nil || !strings.Contains(err.Error(), "another process") {
				t.Error(err)
			}
		}
		if _, seq, err := g.Next(); err != nil || g.Ack(seq) != nil {
			t.Error(seq, err)
		}
		if err := errors.Join(g.Account().Check(), g.Close()); err != nil {
			t.Error(err)
		}
		s := g.open()
		b, _, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.All() {
			if string(r.Data) != "theirs" {
				t.Errorf("%q", r.Data)
			}
		}
		_ = s.Close()
		synctest.Wait()
	})
}

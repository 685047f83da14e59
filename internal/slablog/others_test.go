package slablog

import (
	"fmt"
	"io"
	"log"
	"strings"
	"testing"
)

// A Writer implements the interfaces that other loggers require of a destination:
// zapcore.WriteSyncer of zap, and io.WriteCloser of zerolog and the standard log.
var _ interface {
	io.WriteCloser
	Sync() error
} = (*pump)(nil)

// The standard log writes each line as one record.
func TestStandardLogWritesIntoIt(t *testing.T) {
	var m memory
	w := mustNew(t, &m, nil)
	l := log.New(w, "", 0)
	var want strings.Builder
	for i := range 1000 {
		l.Printf("line %d", i)
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	if m.String() != want.String() {
		t.Errorf("got %d bytes, want %d", len(m.String()), want.Len())
	}
	if a := w.Account(); a.Accepted != 1000 || a.Delivered != 1000 {
		t.Error(a)
	}
	closeNow(t, w)
}

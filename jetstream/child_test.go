package jetstream

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// blocks makes calls wait for room.
var blocks = slab.Block()

// child writes records until it is killed. It goes on counting where the one before has
// ended, and notes each record after its call.
func child(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, "accepted"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	testkit.Must(err)
	info, err := f.Stat()
	testkit.Must(err)
	next := 0
	if n := info.Size() / 8; n > 0 {
		var last [8]byte
		_, err := f.ReadAt(last[:], 8*(n-1))
		testkit.Must(err)
		_, err = fmt.Sscanf(string(last[:]), "%d", &next)
		testkit.Must(err)
		next += 2 // the one behind it may have been accepted, too
	}
	d, err := New(Config{Servers: os.Getenv("FOREBAY_CHILD_URL")})
	testkit.Must(err)
	o := eager(new(events))
	o.CrashDir = filepath.Join(dir, "crash")
	o.Slab.WhenFull = blocks
	out, err := deliver.NewOutput(d, &o)
	testkit.Must(err)
	for ; ; next++ {
		_, err := fmt.Fprintln(out, line(next))
		testkit.Must(err)
		_, err = fmt.Fprintf(f, "%7d\n", next)
		testkit.Must(err)
	}
}

func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

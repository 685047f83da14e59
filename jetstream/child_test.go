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

// blocks is the policy that makes Write wait for free memory.
var blocks = slab.Block()

// writeUntilKilled is the child process, which writes records until the parent kills it. After each
// log call that has accepted a record, it appends the number of the record to the file "accepted".
// The next child begins with the last of these numbers plus 2.
func writeUntilKilled(dir string) {
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
		next += 2 // the child may have been killed between accepting the record and writing its line
	}
	d, err := New(Config{Servers: os.Getenv("FOREBAY_CHILD_URL")})
	testkit.Must(err)
	o := fastOptions(new(events))
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

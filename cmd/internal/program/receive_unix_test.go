//go:build unix

package program

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// While its standard output is not read, forebay receive acknowledges nothing. After the first
// signal, it waits for the output for a limited time. After the second signal, it exits.
func TestReceiveOutputHangs(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	p := start(t, "receive", "--forward=unix:"+socket)
	var c net.Conn
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var err error
		if c, err = net.Dial("unix", socket); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer c.Close()
	msg := append(msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 4), "tag"), 1)
	msg = msgpack.AppendStr(msgpack.AppendStr(msgpack.AppendMapHeader(msg, 1), "text"), strings.Repeat("x", 4<<20)) // larger than a pipe
	msg = msgpack.AppendStr(msgpack.AppendStr(msgpack.AppendMapHeader(msg, 1), "chunk"), "c")
	if _, err := c.Write(msg); err != nil {
		t.Fatal(err)
	}
	if _, err := p.out.Read(make([]byte, 1)); err != nil { // receive has begun to write
		t.Fatal(err)
	}
	p.signal(syscall.SIGINT)
	time.Sleep(2 * process.SameSignal) // an equal signal within SameSignal would be ignored
	p.signal(syscall.SIGINT)
	code, stderr := p.wait()
	if code != exit.RuntimeCode {
		t.Errorf("exit %d: %s", code, stderr)
	}
	wantMatch(t, stderr, "^forebay: (stopped by a second signal|standard output is not being read: the last messages were not acknowledged)$")
	wantMatch(t, stderr, "^forebay: received 0 records ")
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("the message was acknowledged, though it was not written")
	}
}

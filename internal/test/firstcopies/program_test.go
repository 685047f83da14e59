package firstcopies

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// built contains the path of the program forebay. The first call of program builds it.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "forebay-order-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "forebay")
		cmd := exec.Command("go", "-C", "../../../cmd", "build", "-o", built.path, "./forebay")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// pipe runs forebay pipe with n lines of the given format as input. For each key, it adds each line
// to the ledger as a record.
func (tr *walkRound) pipe(keys []string, n int, format string, args ...string) {
	var input bytes.Buffer
	for i := range n {
		for _, key := range keys {
			tr.led.end(key, tr.led.begin(key), true) // the order of the input counts as the order of the calls
		}
		fmt.Fprintf(&input, format, label("in", i, tr.rng.IntN(100)))
	}
	cmd := exec.Command(program(tr.T), append([]string{"pipe"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = &input, &stderr
	if err := cmd.Start(); err != nil {
		tr.Fatal(err)
	}
	killer := time.AfterFunc(maxWait, func() { cmd.Process.Kill() })
	defer killer.Stop()
	if err := cmd.Wait(); err != nil {
		tr.led.report(other, "forebay pipe: %v: %s", err, stderr.String())
	}
}

// pipeForward sends JSON lines to several Forward servers that sometimes reset connections. The
// clients use the defaults: a window of 4 and frames of 64 KiB. Each connection accepts some
// messages before it ends, because the client would otherwise suspect and drop good records.
func pipeForward(tr *walkRound) (uint64, int) {
	args := []string{"--format", "json", "--slab-size", []string{"4KiB", "16KiB", "64KiB"}[tr.rng.IntN(3)], "--slabs", "32"}
	var keys []string
	var peers []*forwardPeer
	for i := range 10 {
		p := &forwardPeer{tr: tr, as: fmt.Sprintf("server %d", i), death: 4, spares: 2}
		p.start()
		peers, keys = append(peers, p), append(keys, p.as)
		args = append(args, "--to", "forward://"+p.l.addr)
	}
	endFaults := time.AfterFunc(time.Second, func() { // a client may wait for seconds between attempts
		for _, p := range peers {
			p.good.Store(true)
		}
	})
	defer endFaults.Stop()
	tr.pipe(keys, 12_000, `{"m":%q}`+"\n", args...)
	return 0, 4 * ((64<<10)/30 + 1)
}

// pipeLines sends lines to a server that sometimes closes a connection. Before that, the server
// reads everything, so no line is lost.
func pipeLines(tr *walkRound) (uint64, int) {
	p := &linePeer{tr: tr, graceful: true, death: 1 << 20}
	p.start()
	tr.pipe([]string{"in"}, 20_000, "%s\n", "--format", "text", "--slab-size", "4KiB", "--slabs", "16", "--to", "tcp://"+p.l.addr)
	p.readAll()
	return 0, 1
}

// forebay pipe delivers the first copies of its lines in the order of the input, to Forward servers
// and as lines over TCP.
func TestProgramKeepsInputOrder(t *testing.T) {
	play(t, "forward", 2, pipeForward)
	play(t, "lines", 1, pipeLines)
}

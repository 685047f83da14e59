//go:build unix

package program

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/forward"
	"github.com/forebay-log/forebay/cmd/internal/listen/ndjson"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/vfs"
)

// A powerWalk runs the program on a simulated disk that repeatedly loses its power. The program has
// two inputs: a followed file, and a peer that wants acknowledgements. It has two outputs: a
// rotated file, and a server that is sometimes down and has a spool.
type powerWalk struct {
	t    *testing.T
	seed int64
	r    *rand.Rand // used by runUntil only
	root string     // directory on the simulated disk
	log  string     // path of the followed file, which is on a real disk

	mu       sync.Mutex
	written  int             // number of lines in log
	sent     int             // number of records that the peer has sent
	acked    []int           // numbers of the acknowledged records of the peer
	server   map[string]bool // records that the server has accepted
	down     bool
	messages lockedText
}

// peer is an input. As in a listener, its records are acknowledged after they are delivered or
// stored.
type peer struct{ w *powerWalk }

type peerSource struct {
	*powerWalk
	in     *intake.Inlet
	take   *intake.Intake
	ctx    context.Context
	cancel context.CancelFunc
}

func (k peer) Open(in *intake.Inlet) (input.Source, error) {
	ctx, cancel := context.WithCancel(context.Background())
	return &peerSource{k.w, in, in.NewIntake(), ctx, cancel}, nil
}

func (s *peerSource) Stop()           { s.cancel() }
func (s *peerSource) Close()          { s.cancel() }
func (*peerSource) Finish(bool) error { return nil }
func (*peerSource) Repeats() string   { return "" }
func (s *peerSource) Run() error {
	r := rand.New(rand.NewSource(s.seed + int64(s.sent)))
	for s.ctx.Err() == nil {
		first := s.sent
		for range 1 + r.Intn(5) {
			if !s.take.Put([]byte(s.line("peer", s.sent)), 0, &intake.Hints{}) {
				return nil
			}
			s.sent++
		}
		if s.in.Commit(s.ctx) == nil {
			for n := first; n < s.sent; n++ {
				s.acked = append(s.acked, n)
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-s.ctx.Done():
		}
	}
	return nil
}

func (w *powerWalk) line(of string, n int) string {
	return fmt.Sprintf("%s %d %s.\n", of, n, strings.Repeat("x", n*7919%400))
}

// Open returns the server as a destination.
func (w *powerWalk) Open(string, *dest.Spec) (*dest.Target, error) {
	return &dest.Target{
		Dest: destOf(func(_ context.Context, b *batch.Batch) batch.Outcome {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.down {
				return batch.FailedOutcome(errors.New("down"))
			}
			for _, r := range b.All() {
				w.server[string(r.Data)] = true
			}
			return batch.Outcome{}
		}),
		NewEncoder: func() dest.EncodeFunc {
			return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
				return append(append(dst, ev.Line...), '\n'), record.Meta(ev), nil
			}
		},
	}, nil
}

func (*powerWalk) Scheme() string             { return "server" }
func (*powerWalk) Usage() (form, what string) { return "server:", "a server" }

// write appends n lines to the followed file.
func (w *powerWalk) write(n int) {
	f, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer f.Close()
	for range n {
		if _, err := f.WriteString(w.line("line", w.written)); err != nil {
			w.t.Error(err)
		}
		w.written++
	}
}

// runUntil runs the program until powerLost is closed, which means that the disk has lost its
// power. If powerLost is nil, the program is ended after 15 s, when everything is delivered.
func (w *powerWalk) runUntil(powerLost <-chan struct{}) {
	c := newConfig("file:"+filepath.Join(w.root, "out", "a.log"), "server:")
	c.Dests = append(c.Dests, w)
	c.DrainTimeout = setting.Duration(20 * time.Second)
	giveOptions(w.t, &c.Options, "--fsync", "--mkdirs", "--rotate-size", "4KiB", "--spool", filepath.Join(w.root, "spool"), "--flush-interval", "400ms")
	if err := c.Settle(); err != nil {
		w.t.Fatal(err)
	}
	c.Inputs = []*input.Config{
		{Name: "tail", Kind: &input.Tail{Files: []string{w.log}, State: filepath.Join(w.root, "state", "tail"), From: setting.Choice{Value: "start"}}},
		{Name: "peer", Kind: peer{w}},
	}
	p := run.New(c, &w.messages)
	null, err := os.Open(os.DevNull)
	if err != nil {
		w.t.Fatal(err)
	}
	defer null.Close()
	ended := make(chan error, 1)
	go func() { ended <- run.Run(p, null, null) }()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(15 * time.Second); ; {
		select {
		case <-tick.C:
			w.mu.Lock()
			w.down = powerLost != nil && w.r.Intn(3) > 0
			w.mu.Unlock()
			if powerLost != nil {
				w.write(w.r.Intn(6))
			}
			continue
		case <-powerLost:
		case <-end:
			if powerLost != nil {
				continue // do not end the program before the disk loses its power
			}
			p.Signals <- os.Interrupt
			if err := <-ended; err != nil {
				w.t.Fatalf("%v\n%s", err, w.messages.String())
			}
			return
		case <-ended: // the program could not start
			return
		}
		p.Signals <- os.Interrupt // nothing can be written to the disk any more, so force the end
		time.Sleep(2 * process.SameSignal)
		p.Signals <- os.Interrupt
		<-ended
		return
	}
}

// check checks that the rotated file and the server have every line of the followed file and every
// acknowledged record of the peer.
func (w *powerWalk) check() {
	file := map[string]bool{}
	names, err := filepath.Glob(filepath.Join(w.root, "out", "*"))
	if err != nil || len(names) == 0 {
		w.t.Fatal("no files")
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			w.t.Fatal(err)
		}
		for l := range bytes.Lines(text) {
			file[string(l)] = true
		}
	}
	for where, has := range map[string]map[string]bool{"file": file, "server": w.server} {
		for n := range w.written {
			if !has[w.line("line", n)] {
				w.t.Errorf("line %d of %d is missing at the %s; %s", n, w.written, where, damaged(names, "line", n))
			}
		}
		for _, n := range w.acked {
			if !has[w.line("peer", n)] {
				w.t.Errorf("acknowledged record %d is missing at the %s; %s", n, where, damaged(names, "peer", n))
			}
		}
	}
}

// damaged describes the places at which files contain the beginning of a missing line.
func damaged(files []string, of string, n int) string {
	found := "not in the files"
	for _, name := range files {
		text, _ := os.ReadFile(name)
		if i := bytes.Index(text, fmt.Appendf(nil, "%s %d ", of, n)); i >= 0 {
			found = fmt.Sprintf("in %s at %d: %q", filepath.Base(name), i, text[max(0, i-100):min(len(text), i+450)])
		}
	}
	return found
}

// With --fsync, a power loss loses neither an acknowledged record nor a line of a followed file,
// even if the disk was full or a sync failed earlier.
func TestNothingAcknowledgedIsLostWithPower(t *testing.T) {
	system := vfs.OS
	defer func() { vfs.OS = system }()
	acked := 0
	for seed := range testkit.Walks(t, 4) {
		w := &powerWalk{t: t, seed: int64(seed), r: rand.New(rand.NewSource(int64(seed))), root: t.TempDir(), server: map[string]bool{}}
		w.log = filepath.Join(t.TempDir(), "in.log")
		inBubble(t, func(t *testing.T) {
			w.t = t
			w.write(3)
			var left *vfs.Mem
			for range 1 + w.r.Intn(4) {
				disk, err := vfs.NewDisk(w.root, left, rand.New(rand.NewSource(w.r.Int63())))
				if err != nil {
					t.Fatal(err)
				}
				disk.Full, disk.Failing = w.r.Intn(3) == 0, w.r.Intn(3) == 0
				disk.CutPower(1 + w.r.Intn(500))
				vfs.OS = disk
				w.runUntil(disk.PowerLost())
				left = disk.After()
			}
			if _, err := vfs.NewDisk(w.root, left, rand.New(rand.NewSource(w.r.Int63()))); err != nil {
				t.Fatal(err)
			}
			vfs.OS = system
			w.runUntil(nil)
			if w.check(); t.Failed() {
				t.Log(w.messages.String())
			}
		})
		acked += len(w.acked)
	}
	if acked == 0 {
		t.Error("nothing was acknowledged")
	}
}

// A pipeListener is a net.Listener that accepts one connection.
type pipeListener struct {
	conn chan net.Conn
	done chan struct{}
	once sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// If forebay receive --fsync has acknowledged a record, a power loss does not remove the record
// from the file of --out.
func TestAckedSurvivesPowerLoss(t *testing.T) {
	system := vfs.OS
	defer func() { vfs.OS = system }()
	total := 0
	for seed := range testkit.Walks(t, 40) {
		inBubble(t, func(t *testing.T) {
			r := rand.New(rand.NewSource(int64(seed)))
			root := t.TempDir()
			disk, err := vfs.NewDisk(root, nil, rand.New(rand.NewSource(r.Int63())))
			if err != nil {
				t.Fatal(err)
			}
			disk.Failing = r.Intn(4) == 0
			disk.CutPower(1 + r.Intn(80))
			vfs.OS = disk
			acked := receiveUntil(t, r, filepath.Join(root, "out"), disk.PowerLost())
			left := disk.After()
			if _, err := vfs.NewDisk(root, left, r); err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile(filepath.Join(root, "out"))
			for _, n := range acked {
				if !bytes.Contains(text, fmt.Appendf(nil, `"body":{"n":%d}}`+"\n", n)) {
					t.Fatalf("seed %d: the file does not contain the acknowledged record %d", seed, n)
				}
			}
			total += len(acked)
		})
	}
	if total == 0 {
		t.Error("nothing was acknowledged")
	}
}

// receiveUntil sends records to a Forward listener until powerLost is closed or a sync fails. It
// returns the numbers of the acknowledged records.
func receiveUntil(t *testing.T, r *rand.Rand, path string, powerLost <-chan struct{}) (acked []int) {
	f, err := file.Open(path, &file.Options{Sync: "always"})
	if err != nil {
		return nil // the disk has already lost its power, or a sync failed
	}
	defer f.Close()
	s := forward.New(forward.Config{Config: listen.Config{Sink: ndjson.New(f, nil)}})
	l := &pipeListener{conn: make(chan net.Conn, 1), done: make(chan struct{})}
	s.Serve(l)
	client, server := net.Pipe()
	l.conn <- server
	ended := make(chan struct{})
	go func() { // each answer is {"ack": N}
		defer close(ended)
		in := bufio.NewReader(client)
		for {
			head := make([]byte, len("\x81\xa3ack")+1)
			if _, err := io.ReadFull(in, head); err != nil {
				return
			}
			chunk := make([]byte, head[len(head)-1]&0x1f)
			if _, err := io.ReadFull(in, chunk); err != nil {
				return
			}
			n, err := strconv.Atoi(string(chunk))
			if err != nil {
				t.Errorf("%q was acknowledged", chunk)
			}
			acked = append(acked, n)
		}
	}()
	for n := 0; ; n++ {
		m := msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 4), "t")
		m = msgpack.AppendInt(msgpack.AppendStr(msgpack.AppendMapHeader(msgpack.AppendInt(m, 1), 1), "n"), int64(n))
		m = msgpack.AppendStr(msgpack.AppendStr(msgpack.AppendMapHeader(m, 1), "chunk"), strconv.Itoa(n))
		if _, err := client.Write(m); err != nil { // the listener has closed the connection
			break
		}
		select {
		case <-powerLost:
		default:
			if r.Intn(3) == 0 {
				time.Sleep(time.Millisecond)
			}
			continue
		}
		break
	}
	s.Close(context.Background())
	client.Close()
	<-ended
	return acked
}

//go:build linux || darwin

package firstcopies

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A feed is the input of several processes of the program, which run one after another. It stores
// how much of the input they have read.
type feed struct {
	tr   *walkRound
	kind feedKind
	keys []string // keys of the outputs; each output gets all lines
	text []byte   // all lines
	ends []int    // end of each line in text
	fed  int      // number of bytes of text that were written to pipes
	read int      // number of bytes in complete lines that processes have read; unused for onePipe
	torn int      // number of processes that ended within a line
	file *os.File
	r, w *os.File // the pipe; if nil, the next process gets a new pipe
}

type feedKind int

const (
	onePipe  feedKind = iota // all processes read the same pipe, except that a new pipe follows a terminated process
	oneFile                  // all processes read the same regular file, from its current offset
	newPipes                 // each process has its own pipe
)

// grow adds n lines to the input.
func (f *feed) grow(n int) {
	from := len(f.text)
	for range n {
		for _, key := range f.keys {
			f.tr.led.end(key, f.tr.led.begin(key), true)
		}
		f.text = fmt.Appendf(f.text, "{\"m\":%q}\n", label("in", len(f.ends), f.tr.rng.IntN(100)))
		f.ends = append(f.ends, len(f.text))
	}
	if f.kind == oneFile {
		if _, err := f.file.WriteAt(f.text[from:], int64(from)); err != nil {
			f.tr.Fatal(err)
		}
	}
}

// stdin returns the input of the next process, and a function to call when the process has ended.
// last reports that the process reads to the end of the input.
//
// terminated reports that the process will be terminated by a signal. Such a process also delivers
// a line that it has read only in part. The following process must get this line as a whole, so it
// gets a new pipe.
func (f *feed) stdin(terminated, last bool) (in *os.File, ended func()) {
	if f.kind == oneFile {
		return f.file, func() { f.readUpTo(f.offset()) }
	}
	if f.r == nil {
		var err error
		if f.r, f.w, err = os.Pipe(); err != nil {
			f.tr.Fatal(err)
		}
		f.fed = f.read
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	r := f.tr.fork()
	go func() { // writes the text in pieces that may end within a line
		defer close(done)
		for f.fed < len(f.text) {
			if !last {
				select {
				case <-stop:
					return
				default:
				}
			}
			n := min(len(f.text)-f.fed, 1+r.IntN(8<<10))
			f.w.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
			n, _ = f.w.Write(f.text[f.fed : f.fed+n])
			f.fed += n
			if !last && r.IntN(10) == 0 {
				time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			}
		}
		if last {
			f.w.Close()
		}
	}()
	return f.r, func() {
		close(stop)
		<-done
		if f.kind == newPipes || terminated {
			f.w.Close()
			left, err := io.ReadAll(f.r)
			if err != nil {
				f.tr.Fatal(err)
			}
			f.r.Close()
			f.r, f.w = nil, nil
			f.readUpTo(f.fed - len(left))
		}
	}
}

func (f *feed) offset() int {
	at, err := f.file.Seek(0, io.SeekCurrent)
	if err != nil {
		f.tr.Fatal(err)
	}
	return int(at)
}

// readUpTo is called when the processes have read all input before offset at. If they have read
// only a part of a line, the next process gets the whole line.
func (f *feed) readUpTo(at int) {
	f.read = 0
	for _, end := range f.ends {
		if end > at {
			break
		}
		f.read = end
	}
	if f.read < at {
		f.torn++
	}
	if f.kind == oneFile {
		if _, err := f.file.Seek(int64(f.read), io.SeekStart); err != nil {
			f.tr.Fatal(err)
		}
	}
}

// close closes the pipe or file.
func (f *feed) close() {
	for _, file := range []*os.File{f.file, f.r, f.w} {
		if file != nil {
			file.Close()
		}
	}
}

// inFile adds the lines of the output file at path to the ledger. cuts is the maximum number of
// incomplete lines. A killed process may have written or read only a part of its last line.
func (f *feed) inFile(key, path string, cuts int) {
	got, err := os.ReadFile(path)
	if err != nil {
		f.tr.led.report(missing, "%v", err)
		return
	}
	for line := range bytes.Lines(got) {
		text, ok := bytes.CutPrefix(line, []byte(`{"m":"`))
		text, ok2 := bytes.CutSuffix(text, []byte("\"}\n"))
		if _, n, err := readLabel(string(text)); ok && ok2 && err == nil {
			f.tr.led.arrive(key, n)
			continue
		}
		if cuts--; cuts < 0 || !bytes.Contains(f.text, bytes.TrimSuffix(line, []byte("\n"))) {
			f.tr.led.report(other, "%s: a line that nobody wrote: %.100q", key, line)
		}
	}
}

// killPipe kills forebay pipe --crash-safe repeatedly and lets the last process deliver the
// remaining lines. Every line that was read must be delivered, in order.
func killPipe(tr *walkRound) (uint64, int) {
	r, dir := tr.rng, tr.dir()
	f := &feed{tr: tr, kind: feedKind(r.IntN(3))}
	slabBytes, slabs := 4<<10<<r.IntN(3), 2+r.IntN(30)
	args := []string{
		"pipe", "--format", "json", "--slab-size", fmt.Sprintf("%dKiB", slabBytes>>10), "--slabs", fmt.Sprint(slabs),
		"--crash-safe", filepath.Join(dir, "safe"), "--crash-safe-required", "--retry-age", "0",
		"--flush-interval", fmt.Sprintf("%dms", 1+r.IntN(30)),
	}
	spills := false
	if r.IntN(2) == 0 {
		args = append(args, "--spool", filepath.Join(dir, "spool"))
		if spills = r.IntN(2) == 0; spills {
			args = append(args, "--when-full", "spill")
		}
	}
	path := ""
	if r.IntN(2) == 0 {
		path = filepath.Join(dir, "out")
		f.keys = append(f.keys, "file")
		args = append(args, "--to", "file:"+path)
	}
	var peers []*forwardPeer
	for i := range 2 {
		if len(f.keys) > 0 && r.IntN(3) > 0 {
			continue
		}
		p := &forwardPeer{tr: tr, as: fmt.Sprintf("server %d", i), slowness: []int{0, 5}[r.IntN(2)]}
		if r.IntN(2) == 0 {
			p.death, p.spares = 4, 2
		}
		if r.IntN(3) == 0 {
			p.silence = 1 + r.IntN(20)
			p.silenceOf.Store(1 << 20)
		}
		p.start()
		peers = append(peers, p)
		f.keys = append(f.keys, p.as)
		args = append(args, "--to", "forward://"+p.l.addr)
	}
	if f.kind == oneFile {
		var err error
		if f.file, err = os.OpenFile(filepath.Join(dir, "in"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			tr.Fatal(err)
		}
	}
	defer f.close()
	lives, died := 4+r.IntN(12), 0
	for life := 0; ; life++ {
		last := life >= lives
		if !last {
			f.grow(r.IntN([]int{2, 100, 5000}[r.IntN(3)]))
		}
		for _, p := range peers {
			if !last && r.IntN(6) == 0 {
				p.l.down(reset)
			} else {
				p.l.up()
			}
			p.good.Store(last)
		}
		terminated := !last && r.IntN(6) == 0
		in, ended := f.stdin(terminated, last)
		own := args
		if terminated {
			own = append(args[:len(args):len(args)], "--drain-timeout", fmt.Sprintf("%dms", 1+r.IntN(60)))
		}
		cmd := exec.Command(program(tr.T), own...)
		var stderr bytes.Buffer
		cmd.Stdin, cmd.Stderr = in, &stderr
		if err := cmd.Start(); err != nil {
			tr.Fatal(err)
		}
		tr.led.failed()
		after := maxWait
		if !last {
			after = time.Duration(r.IntN([]int{5_000, 30_000, 200_000}[r.IntN(3)])) * time.Microsecond
		}
		killer := time.AfterFunc(after, func() {
			if terminated {
				cmd.Process.Signal(syscall.SIGTERM)
				time.Sleep(500 * time.Millisecond) // real time, in which most processes end
			}
			cmd.Process.Kill()
		})
		cmd.Wait()
		killer.Stop()
		ended()
		code := cmd.ProcessState.ExitCode()
		if died++; code < 0 {
			kills.Add(1)
		}
		late := terminated && bytes.Contains(stderr.Bytes(), []byte(" may be lost: ")) // the file has accepted these lines but not flushed them
		if code != -1 && code != 0 && code != 75 && !late {
			tr.led.report(other, "life %d of %d ends with %d: %s", life, lives, code, stderr.String())
		}
		if !last {
			continue
		}
		if code == 75 && life < lives+20 { // if the circuit is open, Close leaves the spool to the next process
			if f.kind == onePipe {
				f.r.Close()
				f.r, f.w, f.kind, f.read = nil, nil, newPipes, len(f.text)
			}
			continue
		}
		if code != 0 {
			tr.led.report(other, "the last life ends with %d: %s", code, stderr.String())
		}
		break
	}
	if path != "" {
		f.inFile("file", path, died+f.torn)
	}
	for _, p := range peers {
		p.l.close()
	}
	return 0, slabs*slabBytes/30 + 4*((64<<10)/30+1)
}

// kills is the number of processes that the test has killed.
var kills atomic.Int64

// If forebay pipe --crash-safe is killed at any time and started again, it loses no line that it
// has read, and keeps the order.
func TestKilledProgram(t *testing.T) {
	kills.Store(0)
	play(t, "pipe", 2, killPipe)
	t.Logf("%d processes were killed", kills.Load())
}

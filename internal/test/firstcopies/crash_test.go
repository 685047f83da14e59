//go:build linux || darwin

package firstcopies

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/slab"
)

const (
	envDir   = "FOREBAY_ORDER_DIR"
	envTo    = "FOREBAY_ORDER_TO" // forward, loki or file
	envAddr  = "FOREBAY_ORDER_ADDR"
	envMem   = "FOREBAY_ORDER_MEMORY"
	envSeed  = "FOREBAY_ORDER_SEED"  // determines the options; all processes of a round have the same seed
	envCalls = "FOREBAY_ORDER_CALLS" // seed of the calls of this process
)

var crashKeys = []string{"a", "b", "c"}

// A memory determines where records are kept until they are delivered. The zero value is the heap.
type memory struct {
	crash bool // slabs are crash-safe
	spool bool
}

// memories contains the kinds of memory that TestCrashKeepsOrder tests, by name.
var memories = map[string]memory{"heap": {}, "spool": {spool: true}, "crash": {crash: true}, "both": {crash: true, spool: true}}

// A target is a destination, with the functions through which a process logs to it.
type target struct {
	write   func(key, text string) error
	flush   func(ctx context.Context) error
	close   func(ctx context.Context) (batch.Account, error)
	failure int // number of records that may arrive again after a failure
	holds   int // number of records that memory can hold
}

// openTarget opens a destination with options determined by seed. dir contains the directories of
// the memory and, for a file destination, the file.
func openTarget(to, addr, dir string, mem memory, seed uint64) (*target, error) {
	r := testkit.Rand(seed)
	tr := &walkRound{rng: r}
	slabBytes := 512 << r.IntN(5)
	slabs := 3 + r.IntN(16)
	crashDir, spoolDir, full := "", "", "block"
	if mem.crash {
		crashDir = filepath.Join(dir, "slabs")
	}
	if mem.spool {
		spoolDir = filepath.Join(dir, "spool")
		full = []string{"block", "spill"}[r.IntN(2)]
	}
	if mem.spool && to == "file" { // a file accepts everything, so only slab.Spill moves records to the spool
		full = "spill"
	}
	delivery := func(interval time.Duration) forebay.OutputOption {
		return forebay.Delivery(func(o *deliver.OutputOptions) {
			o.CrashDir, o.SpoolDir, o.Deliver.Retry, o.Deliver.Breaker = crashDir, spoolDir, retry(), tr.breaker()
			o.Slab = slab.Options{SlabBytes: slabBytes, SlabCount: slabs, FlushInterval: interval, WhenFull: slab.Block()}
			if full == "spill" {
				o.Slab.WhenFull = slab.Spill()
			}
		})
	}
	const shortest = 30 // bytes of a record
	open := map[string]func() (*target, error){
		"loki": func() (*target, error) {
			c := loki.Config{
				URL: "http://" + addr, Labels: map[string]string{"app": "x"}, LabelAttrs: []string{"key"}, NoLevelLabel: true,
				BatchBytes: 1024 << r.IntN(4), BatchAge: time.Millisecond,
			}
			d, err := loki.New(c)
			if err != nil {
				return nil, err
			}
			h, err := forebay.NewRouter(forebay.To(d, forebay.OnError(quiet), delivery(0)))
			if err != nil {
				return nil, err
			}
			return &target{
				write: func(key, text string) error {
					rec := slog.NewRecord(time.Now(), slog.LevelInfo, text, 0)
					rec.AddAttrs(slog.String("key", key))
					return h.Handle(context.Background(), rec)
				},
				flush: h.Flush,
				close: func(ctx context.Context) (batch.Account, error) {
					_, err := h.Close(ctx)
					return h.Stats().Outputs[0].Account, err
				},
				failure: 2*c.BatchBytes/40 + 1,
			}, nil
		},
		"forward": func() (*target, error) {
			c := fluent.Config{
				Servers: []string{addr}, Window: 1 << r.IntN(6), FrameBytes: 256 << r.IntN(5),
				ReconnectMin: time.Millisecond, ReconnectMax: 3 * time.Millisecond,
			}
			l, err := fluent.NewLogger(c, forebay.OnError(quiet), delivery(time.Millisecond))
			if err != nil {
				return nil, err
			}
			return &target{
				write: func(key, text string) error { return l.Post(key, event{text}) },
				flush: l.Flush,
				close: func(ctx context.Context) (batch.Account, error) {
					_, err := l.Close(ctx)
					return l.Account(), err
				},
				failure: c.Window * (c.FrameBytes/shortest + 1),
			}, nil
		},
		"file": func() (*target, error) {
			log, err := forebay.New(forebay.OnError(quiet), forebay.File(filepath.Join(dir, "out"), delivery(time.Millisecond)))
			if err != nil {
				return nil, err
			}
			return &target{
				write: func(_, text string) error { log.Info(text); return nil },
				flush: log.Router().Flush,
				close: func(ctx context.Context) (batch.Account, error) {
					_, err := log.Router().Close(ctx)
					return log.Router().Stats().Outputs[0].Account, err
				},
				failure: slabs * (slabBytes/shortest + 1),
			}, nil
		},
	}
	t, err := open[to]()
	if err == nil {
		t.holds = slabs*(slabBytes/shortest+1) + t.failure
	}
	return t, err
}

// init sets child. If envDir is set, the process logs until it is killed. The file progress
// contains three numbers of calls for each key: begun, returned, and returned before the last
// successful Flush.
func init() {
	child = func() {
		dir := os.Getenv(envDir)
		if dir == "" {
			return
		}
		die := func(err error) {
			if err != nil {
				fmt.Fprintln(os.Stderr, "child:", err)
				os.Exit(9)
			}
		}
		seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
		die(err)
		progress, err := os.OpenFile(filepath.Join(dir, "progress"), os.O_RDWR, 0)
		die(err)
		to, err := openTarget(os.Getenv(envTo), os.Getenv(envAddr), dir, memories[os.Getenv(envMem)], seed)
		die(err)
		calls, err := strconv.ParseUint(os.Getenv(envCalls), 10, 64)
		die(err)
		soon := calls%2 == 0 // if set, the process kills itself after a Flush
		var wg sync.WaitGroup
		for g, key := range crashKeys {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(calls, uint64(g)))
				w, err := readProgress(progress, g)
				die(err)
				note := func(at, n int) {
					_, err := progress.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(n)), int64(progressBytes*g+at))
					die(err)
				}
				for n := w.begun; ; n++ {
					note(0, n+1)
					pad := r.IntN(200)
					if r.IntN(20) == 0 {
						pad = len(padding) // the record is larger than the smallest slabs
					}
					die(to.write(key, label(key, n, pad)))
					note(8, n+1)
					if r.IntN(100) == 0 && to.flush(context.Background()) == nil {
						note(16, n+1)
						if soon && r.IntN(10) == 0 { // kill before later records are delivered
							die(syscall.Kill(os.Getpid(), syscall.SIGKILL))
						}
					}
				}
			})
		}
		wg.Wait()
	}
}

const progressBytes = 24

// calls counts the calls for one key.
type calls struct{ begun, returned, flushed int }

func readProgress(f *os.File, g int) (calls, error) {
	var b [progressBytes]byte
	_, err := f.ReadAt(b[:], int64(progressBytes*g))
	n := func(at int) int { return int(binary.LittleEndian.Uint64(b[at:])) }
	return calls{n(0), n(8), n(16)}, err
}

// crashWalk kills processes that log to a destination, and then opens the destination again to
// deliver the remaining records. Crash-safe slabs keep every record whose call had returned.
// Without them, the newest records, which were in memory, are lost. Records in the spool arrive
// once.
func crashWalk(to, memName string) walk {
	mem := memories[memName]
	return func(tr *walkRound) (uint64, int) {
		r := tr.rng
		dir := tr.dir()
		progress, err := os.Create(filepath.Join(dir, "progress"))
		if err != nil {
			tr.Fatal(err)
		}
		defer progress.Close()
		if err := progress.Truncate(int64(progressBytes * len(crashKeys))); err != nil {
			tr.Fatal(err)
		}
		for _, key := range crashKeys {
			tr.led.foreign(key)
		}
		out := &lineFile{tr: tr, path: filepath.Join(dir, "out")}
		addr, endFaults, drain := "", func() {}, out.read
		switch to {
		case "loki":
			p := &lokiPeer{tr: tr, busy: 30, broken: 30, resets: 30, late: 10}
			p.start()
			addr, endFaults, drain = p.l.addr, func() { p.good.Store(true) }, p.l.drain
		case "forward":
			p := &forwardPeer{tr: tr, death: 20 + r.IntN(50), lateAck: 3, slowness: 20, ackAfter: time.Millisecond}
			p.start()
			addr, endFaults, drain = p.l.addr, func() { p.good.Store(true) }, p.l.drain
		}
		seed := r.Uint64()
		from := make([]int, len(crashKeys))
		returned := 0
		type life struct {
			key      string
			from, to int
		}
		var lives []life
		deaths := 1 + r.IntN(3)
		for range deaths {
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), envDir+"="+dir, envTo+"="+to, envAddr+"="+addr, envMem+"="+memName, envSeed+"="+strconv.FormatUint(seed, 10), envCalls+"="+strconv.FormatUint(r.Uint64(), 10))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				tr.Fatal(err)
			}
			gone := make(chan struct{})
			go func() {
				cmd.Wait()
				close(gone)
			}()
			for alive := true; alive; { // until the process has logged a record
				select {
				case <-gone:
					alive = false
				case <-time.After(time.Millisecond):
				}
				if w, _ := readProgress(progress, 0); w.begun > from[0] {
					break
				}
			}
			time.Sleep(time.Duration(r.IntN(80)) * time.Millisecond) // real time, because the process is a real one
			cmd.Process.Kill()
			<-gone
			if stderr.Len() > 0 {
				tr.led.report(other, "the process that is killed: %s", stderr.String())
			}
			tr.led.failed()
			for g, key := range crashKeys {
				w, err := readProgress(progress, g)
				if err != nil {
					tr.Fatal(err)
				}
				if mem.crash {
					tr.led.returned(key, from[g], w.returned)
				} else {
					tr.led.returned(key, from[g], w.flushed)
				}
				lives = append(lives, life{key, from[g], w.begun})
				returned += w.returned - from[g]
				from[g] = w.begun
			}
		}
		endFaults()
		drain()
		before := tr.led.counts()
		var left map[string]int
		if mem.spool {
			left = tr.inSpool(filepath.Join(dir, "spool"))
		}
		delivered := uint64(0)
		for {
			last := open(tr, func() (*target, error) { return openTarget(to, addr, dir, mem, seed) })
			ctx, cancel := minute()
			a, err := last.close(ctx)
			cancel()
			delivered += a.Delivered
			if a.Check() == nil && a.Pending.Spill > 0 && a.Pending.Spill == a.Pending.Total() {
				continue // if the circuit is open, Close leaves the spool to the next process
			}
			tr.ended(a, err)
			if want := uint64(sum(left)); !mem.crash && delivered != want {
				tr.led.report(other, "after the restart %d records are delivered, want the %d of the spool: %v", delivered, want, a)
			}
			if to == "file" {
				out.read()
				out.check(deaths)
			}
			if !mem.crash {
				tr.led.checkRepeated(before, left)
				for _, l := range lives {
					if !mem.spool { // with a spool, kept records may follow records that were lost from memory
						tr.led.checkPrefix(l.key, l.from, l.to)
					}
				}
				if lost := returned - tr.led.distinct(); lost > deaths*last.holds {
					tr.led.report(missing, "%d records are lost, and memory holds %d", lost, last.holds)
				}
			}
			return 0, last.failure
		}
	}
}

// inSpool returns the number of unacknowledged copies of each record in the spool in dir.
func (tr *walkRound) inSpool(dir string) map[string]int {
	left := map[string]int{}
	for e, err := range diskqueue.Scan(dir, nil) {
		if err != nil {
			tr.led.report(other, "spool: %v", err)
			continue
		}
		if e.Acked {
			continue
		}
		for _, rec := range e.Batch.All() {
			left[labelOf(rec.Data)]++
		}
	}
	return left
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

var labelHead = regexp.MustCompile(`<\w+/\d+/`)

// labelOf returns the beginning of a label, which identifies the record.
func labelOf(text []byte) string { return string(labelHead.Find(text)) }

// A lineFile is a log file to which several processes append, one at a time.
type lineFile struct {
	tr   *walkRound
	path string
	at   int // offset up to which the file has been read
	torn int // number of lines that killed processes left incomplete
}

// read adds the complete lines after offset f.at to the ledger.
func (f *lineFile) read() {
	all, err := os.ReadFile(f.path)
	if err != nil {
		f.tr.led.report(missing, "%v", err)
		return
	}
	for line := range bytes.Lines(all[f.at:]) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			return
		}
		f.at += len(line)
		if text := lokiMessage(string(line)); text != "" {
			f.tr.led.arriveText(text)
		} else {
			f.torn++
		}
	}
}

// check reports a defect if there are more incomplete lines than deaths, the number of killed
// processes.
func (f *lineFile) check(deaths int) {
	if f.torn > deaths {
		f.tr.led.report(other, "%d torn lines after %d deaths", f.torn, deaths)
	}
}

// Processes are killed, and the next process recovers their records. First copies arrive in order.
func TestCrashKeepsOrder(t *testing.T) {
	for mem := range memories {
		for _, to := range []string{"file", "forward", "loki"} {
			play(t, to+"/"+mem, 1, crashWalk(to, mem))
		}
	}
}

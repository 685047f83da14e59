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
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/loki"
)

const (
	envDir  = "FOREBAY_ORDER_DIR"
	envTo   = "FOREBAY_ORDER_TO" // forward or loki
	envAddr = "FOREBAY_ORDER_ADDR"
	envSeed = "FOREBAY_ORDER_SEED" // of the options, the same in all lives
)

var crashKeys = []string{"a", "b", "c"}

// A crashSafe is a destination with crash-safe slabs.
type crashSafe struct {
	write   func(key, text string) error
	close   func(ctx context.Context) (batch.Account, error)
	failure int // records that a failure may bring again
}

// openCrashSafe opens the destination of a seed.
func openCrashSafe(to, addr, dir string, seed uint64) (*crashSafe, error) {
	r := testkit.Rand(seed)
	tr := &trial{rng: r}
	slabBytes := 512 << r.IntN(5)
	buffer := slabBytes * (3 + r.IntN(16))
	spoolDir := []string{"", filepath.Join(dir, "spool")}[r.IntN(2)]
	crashDir := filepath.Join(dir, "slabs")
	if to == "loki" {
		c := loki.Config{
			URL: "http://" + addr, Labels: map[string]string{"app": "x"}, LabelAttrs: []string{"key"}, NoLevelLabel: true,
			BatchBytes: 1024 << r.IntN(4), BatchAge: time.Millisecond, SlabBytes: slabBytes, BufferBytes: buffer, WhenFull: "block",
			CrashDir: crashDir, SpoolDir: spoolDir, Retry: retry(), Breaker: tr.breaker(), OnError: quiet,
		}
		h, err := loki.NewHandler(c)
		if err != nil {
			return nil, err
		}
		return &crashSafe{
			write: func(key, text string) error {
				rec := slog.NewRecord(time.Now(), slog.LevelInfo, text, 0)
				rec.AddAttrs(slog.String("key", key))
				return h.Handle(context.Background(), rec)
			},
			close: func(ctx context.Context) (batch.Account, error) {
				_, err := h.Close(ctx)
				return h.Sink.Account(), err
			},
			failure: 2*c.BatchBytes/40 + 1,
		}, nil
	}
	c := fluent.Config{
		Servers: []string{addr}, Window: 1 << r.IntN(6), FrameBytes: 256 << r.IntN(5),
		ReconnectMin: time.Millisecond, ReconnectMax: 3 * time.Millisecond, FlushInterval: time.Millisecond,
		SlabBytes: slabBytes, BufferBytes: buffer, WhenFull: "block",
		CrashDir: crashDir, SpoolDir: spoolDir, Retry: retry(), Breaker: tr.breaker(), OnError: quiet,
	}
	l, err := fluent.NewLogger(c)
	if err != nil {
		return nil, err
	}
	return &crashSafe{
		write: func(key, text string) error { return l.Post(key, event{text}) },
		close: func(ctx context.Context) (batch.Account, error) {
			_, err := l.Close(ctx)
			return l.Account(), err
		},
		failure: c.Window * (c.FrameBytes/30 + 1),
	}, nil
}

// init makes the test binary the process that is killed, where the environment says so.
// It logs until then. For each key the file witness tells how many calls have begun and
// how many have returned.
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
		witness, err := os.OpenFile(filepath.Join(dir, "witness"), os.O_RDWR, 0)
		die(err)
		to, err := openCrashSafe(os.Getenv(envTo), os.Getenv(envAddr), dir, seed)
		die(err)
		var wg sync.WaitGroup
		for g, key := range crashKeys {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(os.Getpid()+g)))
				begun, _, err := readWitness(witness, g)
				die(err)
				note := func(at, n int) {
					_, err := witness.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(n)), int64(16*g+at))
					die(err)
				}
				for n := begun; ; n++ {
					note(0, n+1)
					die(to.write(key, label(key, n, r.IntN(200))))
					note(8, n+1)
				}
			})
		}
		wg.Wait()
	}
}

func readWitness(f *os.File, g int) (begun, returned int, err error) {
	var b [16]byte
	_, err = f.ReadAt(b[:], int64(16*g))
	return int(binary.LittleEndian.Uint64(b[:])), int(binary.LittleEndian.Uint64(b[8:])), err
}

// crashWalk kills processes that log to a destination, and lets the last life deliver
// what they have left.
func crashWalk(to string) walk {
	return func(tr *trial) (uint64, int) {
		r := tr.rng
		dir := tr.dir()
		witness, err := os.Create(filepath.Join(dir, "witness"))
		if err != nil {
			tr.Fatal(err)
		}
		defer witness.Close()
		if err := witness.Truncate(int64(16 * len(crashKeys))); err != nil {
			tr.Fatal(err)
		}
		for _, key := range crashKeys {
			tr.led.foreign(key)
		}
		var l *listener
		var calm func()
		if to == "loki" {
			p := &lokiPeer{tr: tr, busy: 30, broken: 30, resets: 30, late: 10}
			p.start()
			l, calm = p.l, func() { p.good.Store(true) }
		} else {
			p := &forwardPeer{tr: tr, death: 20 + r.IntN(50), lateAck: 3, slowness: 20, ackAfter: time.Millisecond}
			p.start()
			l, calm = p.l, func() { p.good.Store(true) }
		}
		seed := r.Uint64()
		from := make([]int, len(crashKeys))
		for range 1 + r.IntN(3) {
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), envDir+"="+dir, envTo+"="+to, envAddr+"="+l.addr, envSeed+"="+strconv.FormatUint(seed, 10))
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
			for alive := true; alive; { // until it logs
				select {
				case <-gone:
					alive = false
				case <-time.After(time.Millisecond):
				}
				if begun, _, _ := readWitness(witness, 0); begun > from[0] {
					break
				}
			}
			time.Sleep(time.Duration(r.IntN(80)) * time.Millisecond) // real time: a real process is killed
			cmd.Process.Kill()
			<-gone
			if stderr.Len() > 0 {
				tr.led.fell(other, "the process that is killed: %s", stderr.String())
			}
			tr.led.failed()
			for g, key := range crashKeys {
				begun, returned, err := readWitness(witness, g)
				if err != nil {
					tr.Fatal(err)
				}
				tr.led.returned(key, from[g], returned)
				from[g] = begun
			}
		}
		calm()
		for {
			last := open(tr, func() (*crashSafe, error) { return openCrashSafe(to, l.addr, dir, seed) })
			ctx, cancel := minute()
			a, err := last.close(ctx)
			cancel()
			if a.Check() == nil && a.Pending.Spill > 0 && a.Pending.Spill == a.Pending.Total() {
				continue // a Close that finds the circuit open leaves the spool to the next life
			}
			tr.ended(a, err)
			return 0, last.failure
		}
	}
}

// Processes are killed, and the next one recovers: the order holds over all lives.
func TestCrash(t *testing.T) {
	play(t, "forward", 3, 500, crashWalk("forward"))
	play(t, "loki", 2, 500, crashWalk("loki"))
}

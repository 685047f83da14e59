package forebay_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A logged is one log call and the outputs that must or may accept its record.
type logged struct {
	proc            int
	begun, returned int  // times in terms of walk.moment; 0: not yet
	sure, maybe     uint // bit sets of outputs: those that must accept the record, and those that may accept it
}

// A walk tests a router with random outputs by random steps. Steps are log calls from several
// goroutines, Flush, Close with various timeouts, and kills of the process. Destinations fail, hang
// and recover. Several simulated processes use the same directories one after another. The walk
// keeps a list of the logged records, and of the records that arrive at each endpoint. It compares
// these lists with the files on disk and with the accounts.
type walk struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	dir  string
	outs []*out
	r    *forebay.Router

	mu         sync.Mutex
	proc       int
	closing    bool
	moment     int
	running    int
	calls      map[key]*logged
	goroutines int // number of goroutines that have logged so far
	steps      []string
}

// errorf reports the first error of a walk, with its seed, its outputs and its last steps.
func (k *walk) errorf(format string, args ...any) {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.t.Failed() {
		var opts []string
		for _, o := range k.outs {
			opts = append(opts, o.String())
		}
		k.t.Errorf("FOREBAY_SEED=%d, process %d: %s\noutputs:\n%s\nsteps: %s", k.seed, k.proc, fmt.Sprintf(format, args...),
			strings.Join(opts, "\n"), strings.Join(k.steps[max(0, len(k.steps)-60):], ", "))
	}
}

func (k *walk) step(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.steps = append(k.steps, fmt.Sprintf(format, args...))
}

func (k *walk) now() (proc int, closing bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.proc, k.closing
}

func (k *walk) callsRunning() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running
}

// build chooses the outputs at random, and the outputs that share a route.
func (k *walk) build() {
	routes := 0
	for i := range 1 + k.rng.IntN(4) {
		o := k.newOut(i)
		o.route = routes
		if i > 0 && k.rng.IntN(2) == 0 {
			for _, other := range k.outs {
				if other.enc.Codec().ContentType() == o.enc.Codec().ContentType() && other.kind != "loki" && o.kind != "loki" {
					o.route = other.route
				}
			}
		}
		if o.route == routes {
			if routes++; routes > 3 {
				o.close()
				return
			}
		}
		k.outs = append(k.outs, o)
	}
}

// startProcess starts a simulated process: it opens the outputs and makes a router.
func (k *walk) startProcess() {
	k.mu.Lock()
	k.proc++
	k.closing = false
	k.mu.Unlock()
	specs := make([][]forebay.OutputSpec, 4)
	encs := make([]encode.Encoder, 4)
	for _, o := range k.outs {
		enc, w := o.open()
		if encs[o.route] == nil {
			encs[o.route] = enc
		}
		opts := []forebay.OutputOption{forebay.Direct(), forebay.CloseWriter(), forebay.Name(o.name)}
		if o.level != nil {
			opts = append(opts, forebay.Level(o.level))
		}
		specs[o.route] = append(specs[o.route], forebay.Writer(w, opts...))
	}
	opts := []forebay.Option{forebay.OnError(quiet)}
	for i, enc := range encs {
		if enc != nil {
			opts = append(opts, forebay.Route(enc, specs[i]...))
		}
	}
	var err error
	if k.r, err = forebay.NewRouter(opts...); err != nil {
		k.t.Fatal(err)
	}
}

// stats returns the statistics of each output, in the order of k.outs. It fails if an account does
// not balance.
func (k *walk) stats() []forebay.OutputStats {
	st := k.r.Stats().Outputs
	byOut := make([]forebay.OutputStats, len(k.outs))
	for _, s := range st {
		if err := s.Check(); err != nil {
			k.errorf("%s: %v", s.Name, err)
		}
		i := slices.IndexFunc(k.outs, func(o *out) bool { return o.name == s.Name })
		byOut[i] = s
	}
	return byOut
}

// log makes one log call for the record id and stores which outputs must accept the record.
func (k *walk) log(log func(slog.Level, string, ...slog.Attr), id key, level slog.Level, size int) {
	k.mu.Lock()
	k.moment++
	k.running++
	c := &logged{proc: k.proc, begun: k.moment}
	for i, o := range k.outs {
		switch {
		case !o.admits(level):
		case k.closing:
			c.maybe |= 1 << i
		default:
			c.sure |= 1 << i
		}
	}
	k.calls[id] = c
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.moment++
		k.running--
		c.returned = k.moment
	}()
	log(level, "message", slog.Int("n", id.n), slog.Duration("took", time.Second), slog.String("text", tokenOf(id, size)))
}

// makeUnsureLocked is called when the level of outs changes or Close begins. Calls in progress may
// observe the state before or after the change, so outs may, but need not, accept their records.
func (k *walk) makeUnsureLocked(outs uint) {
	for _, c := range k.calls {
		if c.returned == 0 {
			c.maybe |= c.sure&outs | outs
			c.sure &^= outs
		}
	}
}

func (o *out) admits(l slog.Level) bool {
	if o.level == nil {
		return l >= slog.LevelInfo
	}
	return l >= o.level.Level()
}

// logger returns the log function of a random kind of logger.
func (k *walk) logger() func(slog.Level, string, ...slog.Attr) {
	ctx := context.Background()
	slogger := func(l *slog.Logger) func(slog.Level, string, ...slog.Attr) {
		return func(level slog.Level, msg string, attrs ...slog.Attr) { l.LogAttrs(ctx, level, msg, attrs...) }
	}
	switch k.rng.IntN(6) {
	case 0:
		return k.r.Logger().Log
	case 1:
		return k.r.Logger().With(slog.String("with", "a value")).Log
	case 2:
		return k.r.Logger().WithGroup("group").Log
	case 3:
		return slogger(k.r.Logger().Slog())
	case 4:
		return slogger(slog.New(k.r).With("with", 1).WithGroup("group"))
	}
	return slogger(slog.New(k.r))
}

// burst logs random records from several goroutines.
func (k *walk) burst() {
	many := 1 + k.rng.IntN(4)
	total := 0
	for range many {
		k.goroutines++
		goroutine, log, n, rng := k.goroutines, k.logger(), 1+k.rng.IntN(20), testkit.Rand(k.rng.Uint64())
		total += n
		go func() {
			for i := range n {
				level := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelInfo, slog.LevelWarn, slog.LevelError}[rng.IntN(5)]
				size := rng.IntN(100)
				switch rng.IntN(40) {
				case 0:
					size = rng.IntN(3000)
				case 1:
					size = rng.IntN(6000)
				}
				k.log(log, key{goroutine, i}, level, size)
			}
		}()
	}
	k.step("burst %d by %d", total, many)
}

func (k *walk) randomOut() *out { return k.outs[k.rng.IntN(len(k.outs))] }

// takeStep makes a random step.
func (k *walk) takeStep() {
	r := k.rng
	switch n := r.IntN(100); {
	case n < 40:
		if k.callsRunning() < 12 {
			k.burst()
		}
	case n < 55:
		d := time.Duration(r.IntN(50)) * time.Millisecond
		if r.IntN(5) == 0 {
			d *= 100
		}
		k.step("sleep %v", d)
		time.Sleep(d)
	case n < 65:
		o, p := k.randomOut(), []float64{0, 0.2, 0.7, 1}[r.IntN(4)]
		k.step("fail %s %v", o.name, p)
		[]*endpoint{o.dest, o.dest, o.dest, o.fallbackEnd, o.deadLetterEnd}[r.IntN(5)].set(p)
	case n < 70:
		o, ignoresCtx := k.randomOut(), r.IntN(3) == 0
		k.step("hang %s %v", o.name, ignoresCtx)
		[]*endpoint{o.dest, o.dest, o.dest, o.fallbackEnd, o.deadLetterEnd}[r.IntN(5)].hang(ignoresCtx)
	case n < 78:
		o := k.randomOut()
		k.step("heal %s", o.name)
		o.heal()
	case n < 84:
		o := k.randomOut()
		if v, ok := o.level.(*slog.LevelVar); ok {
			l := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn}[r.IntN(3)]
			k.step("level %s %v", o.name, l)
			k.mu.Lock()
			v.Set(l)
			k.makeUnsureLocked(1 << o.i)
			k.mu.Unlock()
		}
	case n < 90:
		k.flush(time.Duration(r.IntN(3000)) * time.Millisecond)
	case n < 94:
		if o := k.randomOut(); o.kind == "sink" || o.kind == "async" {
			k.step("fail forever %s", o.name)
			o.dest.failForever(k.proc)
		}
	case n < 95:
		if o := k.randomOut(); o.file != nil {
			k.step("rotate %s", o.name)
			if err := o.file.Rotate(); err != nil {
				k.errorf("%v", err)
			}
			time.Sleep(time.Millisecond) // the name of a rotated file contains the time in ms
		}
	default:
		k.step("wait")
		synctest.Wait()
	}
	k.stats()
}

// flush calls Flush. If it returns nil and no log call was in progress, no record may be pending.
func (k *walk) flush(timeout time.Duration) {
	synctest.Wait()
	quiet := k.callsRunning() == 0
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := k.r.Flush(ctx)
	k.step("flush %v: %v, %v", timeout, quiet, err != nil)
	if err != nil || !quiet {
		return
	}
	for _, s := range k.stats() {
		if s.Pending.Total() > 0 {
			k.errorf("%s: after Flush: %v", s.Name, s.Account)
		}
	}
}

// closeProcess closes the router and everything that the user has to close, waits until all
// goroutines have ended, and checks the outputs. The parameter before has the records that the
// previous process left on disk, and after has the records that this process leaves. last reports
// whether this is the last process.
func (k *walk) closeProcess(before []leftover, last bool) (after []leftover) {
	heal := func() {
		for _, o := range k.outs {
			o.heal()
		}
	}
	timeout := []time.Duration{-1, time.Duration(k.rng.IntN(100)) * time.Millisecond, time.Duration(k.rng.IntN(8000)) * time.Millisecond, time.Hour}[k.rng.IntN(4)]
	if last {
		timeout = 24 * time.Hour
	}
	if timeout >= time.Hour {
		heal()
		if last {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
		}
	}
	synctest.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// While the output searches for a poisonous record, the circuit breaker may be open. Close then
	// leaves the last records in the spool. After the last Close nothing may be on disk, so no
	// records are logged before it if the destination refuses records.
	refuses := slices.ContainsFunc(k.outs, func(o *out) bool { return o.poison })
	if k.rng.IntN(2) == 0 && k.callsRunning() < 12 && !(last && refuses) {
		k.burst()
	}
	k.step("close %v", timeout)
	k.mu.Lock()
	k.closing = true
	k.makeUnsureLocked(1<<len(k.outs) - 1)
	k.mu.Unlock()
	began, closed := time.Now(), make(chan struct{})
	go func() {
		for wait := time.Microsecond; ; wait *= 2 {
			select {
			case <-closed:
				return
			case <-time.After(wait):
				k.stats()
			}
		}
	}()
	rep, err := k.r.Close(ctx)
	close(closed)
	if took := time.Since(began); took > max(0, timeout)+2*time.Second {
		k.errorf("Close took %v, the limit was %v", took, timeout)
	}
	k.step("closed %v", err != nil)
	unknown := map[string]uint64{}
	for _, o := range rep.Outputs {
		if unknown[o.Name] = o.Unknown; o.Unfinished {
			unknown[o.Name] = 1 << 32 // the number is not known
		}
		if err := o.Check(); err != nil {
			k.errorf("%s: report: %v", o.Name, err)
		}
	}
	for _, o := range k.outs {
		for _, closeFn := range o.closers {
			if err := closeFn(); err != nil {
				k.errorf("%s: %v", o.name, err)
			}
		}
	}
	heal()
	time.Sleep(time.Hour)
	synctest.Wait()
	if n := k.callsRunning(); n > 0 {
		k.errorf("%d calls have not returned", n)
	}
	st := k.stats()
	for i, o := range k.outs {
		o.collect()
		d := o.readDisk()
		o.check(st[i].Account, unknown[o.name], before[i], d, false)
		if last {
			o.order()
		}
		if last && (d.len() > 0 || st[i].Pending.Total() > 0) {
			k.errorf("%s: after the last Close, %d records are on disk: %v", o.name, d.len(), st[i].Account)
		}
		after = append(after, d)
	}
	return after
}

// killProcess simulates a crash: the next process finds a copy of the directories as they are now.
func (k *walk) killProcess(before []leftover) (after []leftover) {
	k.step("kill")
	// Calls that end between the reading of the accounts and the check would be missing in the
	// accounts.
	synctest.Wait()
	k.mu.Lock()
	k.makeUnsureLocked(1<<len(k.outs) - 1)
	k.mu.Unlock()
	st := k.stats()
	for i, o := range k.outs {
		o.crash, o.spool = k.copyDir(o.crash), k.copyDir(o.spool)
		o.collect()
		d := o.readDisk()
		o.check(st[i].Account, 0, before[i], d, true)
		after = append(after, d)
	}
	k.mu.Lock()
	k.proc++ // the endpoints ignore records that the killed process still sends
	k.closing = true
	k.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = k.r.Close(ctx)
	for _, o := range k.outs {
		for _, closeFn := range o.closers {
			_ = closeFn()
		}
		o.heal()
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	for _, o := range k.outs {
		if o.peer != nil {
			o.readConns = o.peer.Conns()
		}
	}
	return after
}

// copyDir copies a directory and returns the path of the copy.
func (k *walk) copyDir(dir string) string {
	if dir == "" {
		return ""
	}
	to := fmt.Sprint(dir, "-", k.proc)
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		k.t.Fatal(err)
	}
	return to
}

// canDie reports whether the process can be killed. It returns false if the process writes to files
// that are not copied, because the killed process would write to the files of the next one.
func (k *walk) canDie() bool {
	return !slices.ContainsFunc(k.outs, func(o *out) bool { return o.kind == "file" || o.deadLetters == "file" })
}

// order checks that the first copy of each record arrived in the order of the log calls, within a
// stream.
func (o *out) order() {
	k := o.k
	seen, first := map[key]bool{}, []*arrival(nil)
	for _, c := range o.fallbackEnd.arrivals() {
		seen[c.key] = true // the fallback has the record, so its order is not checked
	}
	for _, c := range o.dest.arrivals() {
		if !seen[c.key] && !o.dest.mayBeUnordered(c) {
			first = append(first, c)
		}
		seen[c.key] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	latest := map[string]key{} // by stream: of the records seen so far, the one whose call began last
	late := o.parkedCount()
	for _, c := range first {
		call, before := k.calls[c.key], k.calls[latest[c.stream]]
		if before != nil && call.returned > 0 && call.returned < before.begun {
			if late > 0 {
				late--
				continue
			}
			k.mu.Unlock()
			k.errorf("%s: record %v arrived after %v, which was logged later", o.name, c.key, latest[c.stream])
			k.mu.Lock()
			return
		}
		if before == nil || call.begun > before.begun {
			latest[c.stream] = c.key
		}
	}
}

// check checks the output after a process has ended. The parameter before has the records that the
// previous process left on disk, and after has the records on disk now. The records of before and
// those logged in the process must have arrived, be in after, or be counted as dropped in the
// account a. unknown is the number of unknown records in the report of Close. If the process was
// killed, a is its account at that moment.
func (o *out) check(a batch.Account, unknown uint64, before, after leftover, died bool) {
	k := o.k
	for reason, n := range a.Dropped {
		o.dropped[reason] += n
	}
	memory := uint64(0) // number of records lost in the memory of the killed process
	switch {
	case !died:
	case o.crash == "":
		memory = a.Pending.Slab + a.Pending.Inflight
	case o.kind == "async": // records in flight
		memory = a.Pending.Inflight
	}
	k.mu.Lock()
	proc := k.proc
	bit := uint(1) << o.i
	expected := map[key]bool{} // true: the output must have accepted the record; false: it may have accepted it
	sure, maybe := uint64(0), uint64(0)
	for id, c := range k.calls {
		if c.proc != proc {
			continue
		}
		if c.sure&bit != 0 {
			expected[id] = true
			sure++
		} else if c.maybe&bit != 0 {
			expected[id] = false
			maybe++
		}
	}
	k.mu.Unlock()
	inBoth := map[key]bool{} // records in the spool and in slabs: Close did not wait for their Send
	for _, id := range append(before.spool[:len(before.spool):len(before.spool)], before.slabs...) {
		inBoth[id] = expected[id]
		expected[id] = true
	}
	// A record whose delivery the spool has recorded is not recovered again from the slabs. Such a
	// record arrived in an earlier process.
	settledBefore := map[key]bool{}
	for _, e := range []*endpoint{o.dest, o.fallbackEnd, o.deadLetterEnd} {
		for _, c := range e.arrivals() {
			if c.proc < proc && o.spool != "" && slices.Contains(before.slabs, c.key) {
				settledBefore[c.key] = true
				expected[c.key] = slices.Contains(before.spool, c.key)
			}
		}
	}
	if a.Accepted < sure || a.Accepted > sure+maybe {
		k.errorf("%s: between %d and %d records must be accepted: %v", o.name, sure, sure+maybe, a)
	}
	// A record in the spool and in the slabs is recovered once if both contain its origin, the id
	// of the memory that accepted it.
	for _, id := range before.spool {
		settledBefore[id] = settledBefore[id] || slices.Contains(before.slabs, id)
	}
	maps.DeleteFunc(settledBefore, func(_ key, keep bool) bool { return !keep })
	if n := uint64(before.len()); a.Recovered > n || a.Recovered < n-uint64(len(settledBefore)) {
		k.errorf("%s: the previous process left %d records in the spool and %d in slabs: %v", o.name, len(before.spool), len(before.slabs), a)
	}
	found, acked, deadLettered, arrivedAt := map[key]bool{}, map[key]bool{}, map[key]bool{}, map[*endpoint]uint64{}
	unsureCopies := uint64(0) // number of copies whose arrival may be unknown to the sender
	for _, e := range []*endpoint{o.dest, o.fallbackEnd, o.deadLetterEnd} {
		for _, c := range e.arrivals() {
			if c.proc != proc {
				continue
			}
			if _, ok := expected[c.key]; !ok {
				k.errorf("%s: record %v arrived, but was neither logged nor left by an earlier process", o.name, c.key)
			}
			if !c.acked || c.duringClose {
				unsureCopies++
			}
			arrivedAt[e]++
			if e == o.deadLetterEnd {
				deadLettered[c.key] = true
				continue
			}
			if e == o.dest && acked[c.key] && !o.mayRepeat && !inBoth[c.key] && !c.reference {
				inSpool, inSlabs := slices.Contains(before.spool, c.key), slices.Contains(before.slabs, c.key)
				k.errorf("%s: record %v was acknowledged and arrived again; left by the previous process in the spool: %v, in slabs: %v", o.name, c.key, inSpool, inSlabs)
			}
			found[c.key] = true
			acked[c.key] = acked[c.key] || c.acked && !c.duringClose
		}
	}
	for _, id := range append(after.spool[:len(after.spool):len(after.spool)], after.slabs...) {
		if _, ok := expected[id]; !ok {
			k.errorf("%s: record %v is on disk, but was neither logged nor left by an earlier process", o.name, id)
		}
		found[id] = true
	}
	missing, maybeMissing, deadLetters, first := uint64(0), uint64(0), uint64(0), key{}
	for id, sure := range expected {
		switch {
		case found[id]:
		case deadLettered[id]:
			deadLetters++
		case sure:
			missing++
			first = id
		default:
			maybeMissing++
		}
	}
	if missing > a.Dropped.Total()+memory {
		k.errorf("%s: %d records are lost and not counted as dropped, one of them %v: %v", o.name, missing, first, a)
	}
	onDisk := map[key]bool{}
	for _, id := range append(after.spool[:len(after.spool):len(after.spool)], after.slabs...) {
		// The sender did not know the result when Close ended, because only part of the batch was
		// received.
		if onDisk[id] || acked[id] {
			unsureCopies++
		}
		onDisk[id] = true
	}
	if died {
		return
	}
	// A record that was dropped because the destination had failed forever or refused it may still
	// be on disk, in one batch with an open record. It may also have arrived at a handler that
	// exceeded its timeout.
	if a.Dropped[batch.Failed]+a.Dropped[batch.Poison] > 0 {
		unsureCopies += arrivedAt[o.fallbackEnd] - min(arrivedAt[o.fallbackEnd], a.Handled)
	}
	unsureCopies += min(a.Dropped[batch.Failed], uint64(after.len())-min(uint64(after.len()), a.Pending.Total()))
	if o.mayRepeat {
		// Some of the copies arrived after records that failed.
		unknown += a.Dropped[batch.Shutdown]
	}
	if o.via != "direct" && a.Dropped.Total() > missing+maybeMissing+deadLetters+unsureCopies+unknown {
		k.errorf("%s: %d records did not arrive, %d became dead letters, %d may not have been accepted, %d may have arrived: too many are counted as dropped: %v", o.name, missing, deadLetters, maybeMissing, unsureCopies, a)
	}
	if a.Delivered > arrivedAt[o.dest] || a.Handled > arrivedAt[o.fallbackEnd] {
		k.errorf("%s: %d copies arrived at the destination and %d at the handler: too many are counted: %v", o.name, arrivedAt[o.dest], arrivedAt[o.fallbackEnd], a)
	}
	// The spool keeps whole batches, which may include records that are no longer pending.
	if n, p := uint64(after.len()), a.Pending.Total(); n < p || n > p+unsureCopies+a.Dropped[batch.Poison] {
		k.errorf("%s: %d records are in the spool and %d in slabs, %d arrived unacknowledged: wrong number pending: %v", o.name, len(after.spool), len(after.slabs), unsureCopies, a)
	}
}

func (k *walk) run() {
	k.build()
	defer func() {
		for _, o := range k.outs {
			o.close()
		}
	}()
	leftovers := make([]leftover, len(k.outs))
	processes := 1 + k.rng.IntN(3)
	for i := range processes {
		k.startProcess()
		for range 15 + k.rng.IntN(30) {
			k.takeStep()
		}
		if i < processes-1 && k.canDie() && k.rng.IntN(3) == 0 {
			leftovers = k.killProcess(leftovers)
		} else {
			leftovers = k.closeProcess(leftovers, i == processes-1)
		}
		if k.t.Failed() {
			return
		}
	}
}

// Each logged record is at its destination, with the fallback, among the dead letters, on disk for
// the next process, or counted as dropped. The accounts balance. This holds for random outputs,
// random failures and every way to end the process.
func TestWalk(t *testing.T) {
	for seed := range testkit.Walks(t, 10) {
		dir := t.TempDir()
		bubble.Test(t, func(t *testing.T) {
			k := &walk{t: t, seed: seed, rng: testkit.Rand(seed), dir: dir, calls: map[key]*logged{}}
			k.run()
		})
		_ = os.RemoveAll(dir) // a long run makes many directories
	}
}

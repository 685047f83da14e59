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

// A logged is a record and the call that logged it.
type logged struct {
	life            int
	begun, returned int  // moments; 0: not yet
	sure, maybe     uint // the outputs that take it, and those that may, as bits
}

// A walk is a pipeline as a user builds it, of random parts, that takes random steps:
// calls from several goroutines, destinations that fail, hang and heal, Flush, Close in
// time and out of time, another life over the same directories. It keeps book of what
// was logged and of what came where, apart from the pipeline, and compares it with the
// disk and the accounts.
type walk struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	dir  string
	outs []*out
	r    *forebay.Router

	mu      sync.Mutex
	life    int
	closing bool
	moment  int
	running int
	calls   map[key]*logged
	who     int // goroutines so far
	steps   []string
}

// errorf reports what is wrong, once for a walk.
func (k *walk) errorf(format string, args ...any) {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.t.Failed() {
		var opts []string
		for _, o := range k.outs {
			opts = append(opts, o.String())
		}
		k.t.Errorf("FOREBAY_SEED=%d, life %d: %s\n%s\nafter %s", k.seed, k.life, fmt.Sprintf(format, args...),
			strings.Join(opts, "\n"), strings.Join(k.steps[max(0, len(k.steps)-60):], ", "))
	}
}

func (k *walk) step(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.steps = append(k.steps, fmt.Sprintf(format, args...))
}

func (k *walk) now() (life int, closing bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.life, k.closing
}

func (k *walk) under() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running
}

// build chooses the outputs and which of them share a route.
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

// begin starts a life of the pipeline.
func (k *walk) begin() {
	k.mu.Lock()
	k.life++
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

// stats returns the account of each output.
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

// log makes one call.
func (k *walk) log(log func(slog.Level, string, ...slog.Attr), id key, level slog.Level, size int) {
	k.mu.Lock()
	k.moment++
	k.running++
	c := &logged{life: k.life, begun: k.moment}
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

// unsureLocked is called when something changes that calls under way may see or not.
func (k *walk) unsureLocked(outs uint) {
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

// logger returns one of the ways to log.
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

// burst logs from several goroutines.
func (k *walk) burst() {
	many := 1 + k.rng.IntN(4)
	total := 0
	for range many {
		k.who++
		who, log, n, rng := k.who, k.logger(), 1+k.rng.IntN(20), testkit.Rand(k.rng.Uint64())
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
				k.log(log, key{who, i}, level, size)
			}
		}()
	}
	k.step("burst %d by %d", total, many)
}

func (k *walk) random() *out { return k.outs[k.rng.IntN(len(k.outs))] }

// walkOn takes a step.
func (k *walk) walkOn() {
	r := k.rng
	switch n := r.IntN(100); {
	case n < 40:
		if k.under() < 12 {
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
		o, p := k.random(), []float64{0, 0.2, 0.7, 1}[r.IntN(4)]
		k.step("trouble %s %v", o.name, p)
		[]*end{o.dest, o.dest, o.dest, o.fall, o.graveyard}[r.IntN(5)].set(p)
	case n < 70:
		o, deaf := k.random(), r.IntN(3) == 0
		k.step("hang %s %v", o.name, deaf)
		[]*end{o.dest, o.dest, o.dest, o.fall, o.graveyard}[r.IntN(5)].hang(deaf)
	case n < 78:
		o := k.random()
		k.step("heal %s", o.name)
		o.heal()
	case n < 84:
		o := k.random()
		if v, ok := o.level.(*slog.LevelVar); ok {
			l := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn}[r.IntN(3)]
			k.step("level %s %v", o.name, l)
			k.mu.Lock()
			v.Set(l)
			k.unsureLocked(1 << o.i)
			k.mu.Unlock()
		}
	case n < 90:
		k.flush(time.Duration(r.IntN(3000)) * time.Millisecond)
	case n < 93:
		if o := k.random(); o.set != nil {
			k.step("set %s", o.name)
			set := o.set
			o.set = nil
			go func() { _ = set() }()
		}
	case n < 94:
		if o := k.random(); o.kind == "sink" || o.kind == "async" {
			k.step("end %s", o.name)
			o.dest.end(k.life)
		}
	case n < 95:
		if o := k.random(); o.file != nil {
			k.step("rotate %s", o.name)
			if err := o.file.Rotate(); err != nil {
				k.errorf("%v", err)
			}
			time.Sleep(time.Millisecond) // old files are told apart by their time
		}
	default:
		k.step("wait")
		synctest.Wait()
	}
	k.stats()
}

// flush flushes, and looks whether nothing is left if that is what Flush says.
func (k *walk) flush(patience time.Duration) {
	synctest.Wait()
	quiet := k.under() == 0
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := k.r.Flush(ctx)
	k.step("flush %v: %v, %v", patience, quiet, err != nil)
	if err != nil || !quiet {
		return
	}
	for _, s := range k.stats() {
		if s.Pending.Total() > 0 {
			k.errorf("%s: after Flush: %v", s.Name, s.Account)
		}
	}
}

// setLate gives their destinations to the outputs that have none.
func (k *walk) setLate() {
	for _, o := range k.outs {
		if o.set != nil {
			set := o.set
			go func() { _ = set() }()
			o.set = nil
		}
	}
	synctest.Wait()
}

// end closes the pipeline, waits until all that is behind it has ended, and compares
// what it says with what is there.
func (k *walk) end(before []kept, last bool) (after []kept) {
	heal := func() {
		for _, o := range k.outs {
			o.heal()
		}
	}
	patience := []time.Duration{-1, time.Duration(k.rng.IntN(100)) * time.Millisecond, time.Duration(k.rng.IntN(8000)) * time.Millisecond, time.Hour}[k.rng.IntN(4)]
	if last {
		patience = 24 * time.Hour
	}
	if patience >= time.Hour {
		heal()
		if last {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
		}
	}
	k.setLate()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// Where records are refused, the circuit may be open while they are searched for: Close then
	// leaves what came last in the spool.
	refuses := slices.ContainsFunc(k.outs, func(o *out) bool { return o.poison })
	if k.rng.IntN(2) == 0 && k.under() < 12 && !(last && refuses) {
		k.burst()
	}
	k.step("close %v", patience)
	k.mu.Lock()
	k.closing = true
	k.unsureLocked(1<<len(k.outs) - 1)
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
	if took := time.Since(began); took > max(0, patience)+2*time.Second {
		k.errorf("Close took %v of %v", took, patience)
	}
	k.step("closed %v", err != nil)
	unknown := map[string]uint64{}
	for _, o := range rep.Outputs {
		if unknown[o.Name] = o.Unknown; o.Unfinished {
			unknown[o.Name] = 1 << 32 // it is not known how many
		}
		if err := o.Check(); err != nil {
			k.errorf("%s: report: %v", o.Name, err)
		}
	}
	for _, o := range k.outs {
		for _, end := range o.ends {
			if err := end(); err != nil {
				k.errorf("%s: %v", o.name, err)
			}
		}
	}
	heal()
	time.Sleep(time.Hour)
	synctest.Wait()
	if n := k.under(); n > 0 {
		k.errorf("%d calls have not returned", n)
	}
	st := k.stats()
	for i, o := range k.outs {
		o.collect()
		d := o.disk()
		o.check(st[i].Account, unknown[o.name], before[i], d, false)
		if last {
			o.order()
		}
		if last && (d.len() > 0 || st[i].Pending.Total() > 0) {
			k.errorf("%s: at the end there are %d on disk, and %v", o.name, d.len(), st[i].Account)
		}
		after = append(after, d)
	}
	return after
}

// die ends the process, and leaves to the next one what is on disk at this moment.
func (k *walk) die(before []kept) (after []kept) {
	k.step("die")
	k.setLate()
	k.mu.Lock()
	k.unsureLocked(1<<len(k.outs) - 1)
	k.mu.Unlock()
	st := k.stats()
	for i, o := range k.outs {
		o.crash, o.spool = k.leave(o.crash), k.leave(o.spool)
		o.collect()
		d := o.disk()
		o.check(st[i].Account, 0, before[i], d, true)
		after = append(after, d)
	}
	k.mu.Lock()
	k.life++ // so that nothing comes of it any more
	k.closing = true
	k.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = k.r.Close(ctx)
	for _, o := range k.outs {
		for _, end := range o.ends {
			_ = end()
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

// leave copies a directory as it is.
func (k *walk) leave(dir string) string {
	if dir == "" {
		return ""
	}
	to := fmt.Sprint(dir, "-", k.life)
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		k.t.Fatal(err)
	}
	return to
}

// mortal reports whether the process can be made to die: nothing of it writes to a file
// of the next one.
func (k *walk) mortal() bool {
	return !slices.ContainsFunc(k.outs, func(o *out) bool { return o.kind == "file" || o.grave == "file" })
}

// order checks that the first copies of records came in the order of the calls.
func (o *out) order() {
	k := o.k
	seen, first := map[key]bool{}, []*arrival(nil)
	for _, c := range o.fall.arrivals() {
		seen[c.key] = true // it went elsewhere
	}
	for _, c := range o.dest.arrivals() {
		if !seen[c.key] && !o.dest.mayBeLate(c) {
			first = append(first, c)
		}
		seen[c.key] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	latest := map[string]key{} // by stream: the call that began last, so far
	late := o.setAside()
	for _, c := range first {
		call, before := k.calls[c.key], k.calls[latest[c.stream]]
		if before != nil && call.returned > 0 && call.returned < before.begun {
			if late > 0 {
				late--
				continue
			}
			k.mu.Unlock()
			k.errorf("%s: record %v came after %v, which was logged later", o.name, c.key, latest[c.stream])
			k.mu.Lock()
			return
		}
		if before == nil || call.begun > before.begun {
			latest[c.stream] = c.key
		}
	}
}

// check compares what was logged in this life, or left by the one before, with what
// came, what is left now, and what the account says of it. If the process died the
// account is that of its last moment.
func (o *out) check(a batch.Account, unknown uint64, before, after kept, died bool) {
	k := o.k
	o.dropped.Add(a.Dropped)
	memory := uint64(0) // records that die with it
	switch {
	case !died:
	case o.crash == "" || o.late:
		memory = a.Pending.Slab + a.Pending.Inflight
	case o.kind == "async": // the window of the engine
		memory = a.Pending.Inflight
	}
	k.mu.Lock()
	life := k.life
	bit := uint(1) << o.i
	pool := map[key]bool{} // false: it may not have been accepted
	sure, maybe := uint64(0), uint64(0)
	for id, c := range k.calls {
		if c.life != life {
			continue
		}
		if c.sure&bit != 0 {
			pool[id] = true
			sure++
		} else if c.maybe&bit != 0 {
			pool[id] = false
			maybe++
		}
	}
	k.mu.Unlock()
	twice := map[key]bool{} // left by a Send that Close did not wait for: in the spool and in slabs
	for _, id := range append(before.spool[:len(before.spool):len(before.spool)], before.slabs...) {
		twice[id] = pool[id]
		pool[id] = true
	}
	// The spool remembers those of them that it has settled, and they are left out.
	// They came in an earlier life.
	known := map[key]bool{}
	for _, e := range []*end{o.dest, o.fall, o.graveyard} {
		for _, c := range e.arrivals() {
			if c.life < life && o.spool != "" && slices.Contains(before.slabs, c.key) {
				known[c.key] = true
				pool[c.key] = slices.Contains(before.spool, c.key)
			}
		}
	}
	if a.Accepted < sure || a.Accepted > sure+maybe {
		k.errorf("%s: %d to %d records were accepted, says the book: %v", o.name, sure, sure+maybe, a)
	}
	for _, id := range before.spool { // those are recovered once, if both say where they are from
		known[id] = known[id] || slices.Contains(before.slabs, id)
	}
	maps.DeleteFunc(known, func(_ key, is bool) bool { return !is })
	if n := uint64(before.len()); a.Recovered > n || a.Recovered < n-uint64(len(known)) {
		k.errorf("%s: %d and %d records were left in the spool and in slabs: %v", o.name, len(before.spool), len(before.slabs), a)
	}
	there, told, graves, came := map[key]bool{}, map[key]bool{}, map[key]bool{}, map[*end]uint64{}
	doubtful := uint64(0) // copies of which the sender may not know
	for _, e := range []*end{o.dest, o.fall, o.graveyard} {
		for _, c := range e.arrivals() {
			if c.life != life {
				continue
			}
			if _, ok := pool[c.key]; !ok {
				k.errorf("%s: record %v came from nowhere", o.name, c.key)
			}
			if !c.acked || c.late {
				doubtful++
			}
			came[e]++
			if e == o.graveyard {
				graves[c.key] = true
				continue
			}
			if e == o.dest && told[c.key] && !o.again && !twice[c.key] && !c.control {
				inSpool, inSlabs := slices.Contains(before.spool, c.key), slices.Contains(before.slabs, c.key)
				k.errorf("%s: record %v came again, left in the spool %v, in slabs %v", o.name, c.key, inSpool, inSlabs)
			}
			there[c.key] = true
			told[c.key] = told[c.key] || c.acked && !c.late
		}
	}
	for _, id := range append(after.spool[:len(after.spool):len(after.spool)], after.slabs...) {
		if _, ok := pool[id]; !ok {
			k.errorf("%s: record %v is on disk, from nowhere", o.name, id)
		}
		there[id] = true
	}
	missing, perhaps, buried, first := uint64(0), uint64(0), uint64(0), key{}
	for id, sure := range pool {
		switch {
		case there[id]:
		case graves[id]:
			buried++
		case sure:
			missing++
			first = id
		default:
			perhaps++
		}
	}
	if missing > a.Dropped.Total()+memory {
		k.errorf("%s: %d records are nowhere, one of them %v: %v", o.name, missing, first, a)
	}
	onDisk := map[key]bool{}
	for _, id := range append(after.spool[:len(after.spool):len(after.spool)], after.slabs...) {
		if onDisk[id] || told[id] { // a Send that Close did not wait for has got it somewhere; or a part of its batch came
			doubtful++
		}
		onDisk[id] = true
	}
	if died {
		return
	}
	// What was dropped because the destination had ended, or refused it, may lie on disk behind a record
	// that is open, or have come to a handler that was given up.
	if a.Dropped[batch.Failed]+a.Dropped[batch.Poison] > 0 {
		doubtful += came[o.fall] - min(came[o.fall], a.Handled)
	}
	doubtful += min(a.Dropped[batch.Failed], uint64(after.len())-min(uint64(after.len()), a.Pending.Total()))
	if o.again {
		unknown += a.Dropped[batch.Shutdown] // some came behind others that failed
	}
	if o.via != "direct" && a.Dropped.Total() > missing+perhaps+buried+doubtful+unknown {
		k.errorf("%s: %d records are nowhere, %d dead letters, %d and %d perhaps: more were dropped: %v", o.name, missing, buried, perhaps, doubtful, a)
	}
	if a.Delivered > came[o.dest] || a.Handled > came[o.fall] {
		k.errorf("%s: %d copies came to the destination, %d to the handler: %v", o.name, came[o.dest], came[o.fall], a)
	}
	if n, p := uint64(after.len()), a.Pending.Total(); n < p || n > p+doubtful+a.Dropped[batch.Poison] { // the spool keeps whole batches
		k.errorf("%s: %d and %d records are in the spool and in slabs, %d came without the sender's knowledge: %v", o.name, len(after.spool), len(after.slabs), doubtful, a)
	}
}

func (k *walk) run() {
	k.build()
	defer func() {
		for _, o := range k.outs {
			o.close()
		}
	}()
	left := make([]kept, len(k.outs))
	lives := 1 + k.rng.IntN(3)
	for i := range lives {
		k.begin()
		for range 15 + k.rng.IntN(30) {
			k.walkOn()
		}
		if i < lives-1 && k.mortal() && k.rng.IntN(3) == 0 {
			left = k.die(left)
		} else {
			left = k.end(left, i == lives-1)
		}
		if k.t.Failed() {
			return
		}
	}
}

// Whatever users build of the parts, whatever the destinations do and however it ends:
// the accounts balance, and each record that was logged is at its destination, with the
// fallback, among the dead letters, on disk for the next process, or counted as dropped.
func TestWalk(t *testing.T) {
	first := testkit.Seed(t)
	for i := range testkit.Rounds(15, 100_000) {
		seed := first + uint64(i)
		dir := t.TempDir()
		bubble.Test(t, func(t *testing.T) {
			k := &walk{t: t, seed: seed, rng: testkit.Rand(seed), dir: dir, calls: map[key]*logged{}}
			k.run()
		})
		if t.Failed() {
			return
		}
		_ = os.RemoveAll(dir) // there may be many
	}
}

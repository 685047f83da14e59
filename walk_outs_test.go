package forebay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/httpsink"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/netsink"
	"github.com/forebay-log/forebay/slab"
)

// An out is one output of the router of a walk, with all that is behind it. What it is
// stays the same over the lives of a walk; sizes and policies change.
type out struct {
	k    *walk
	i    int
	name string
	rng  *rand.Rand

	kind   string // where records go: writer, file, sink, async, net, forward, loki, http
	via    string // how they get there: direct, slab, engine, client
	crash  string // directory of the slabs; empty: they are on the heap
	spool  string // directory of the spool; empty: none
	help   string // who else takes records: "", handler, lines, sink
	grave  string // where refused records go: "", writer, file
	poison bool   // some records are refused
	age    bool   // records become too old
	again  bool   // records that were answered may come again, with those that failed before them
	late   bool   // it gets its destination some time after the start
	level  slog.Leveler
	enc    encode.Encoder
	coded  bool // the slabs know the form of the records; else these are lines of unknown content
	route  int

	dest, fall *end
	graveyard  *end
	path       string // of a file
	gravePath  string
	readFile   int // lines of the file that were looked at
	readGrave  int
	net        *testkit.Network
	peer       *testkit.Peer
	readConns  int
	dropped    batch.Drops // in all lives
	forward    *testkit.Forward
	outputs    []*deliver.Output // one for each life, unless its client has its own
	sheets     []*page           // what handlers of all lives write to

	// Of one life:
	set   func() error // gives a late output its destination
	file  *file.File
	page  *page
	async *testkit.AsyncSink
	ends  []func() error // what the user closes behind the router
}

func (o *out) String() string {
	return fmt.Sprintf("%s: route %d, %s, help %q, grave %q, poison %v, age %v, late %v", o.name, o.route, o.enc.Codec().ContentType(), o.help, o.grave, o.poison, o.age, o.late)
}

func (o *out) heal() {
	o.dest.heal()
	o.fall.heal()
	o.graveyard.heal()
}

// close ends what outlives a process.
func (o *out) close() {
	o.heal()
	if o.peer != nil {
		o.peer.Close()
	}
	if o.forward != nil {
		o.forward.Close()
	}
}

// quiet is an OnError for tests that expect failures.
func quiet(batch.Event) {}

func (k *walk) newOut(i int) *out {
	r := k.rng
	o := &out{k: k, i: i, rng: testkit.Rand(r.Uint64()), crash: "", path: filepath.Join(k.dir, fmt.Sprint(i, ".log"))}
	o.kind = []string{"writer", "writer", "file", "sink", "sink", "async", "net", "forward", "forward", "loki", "http"}[r.IntN(11)]
	switch o.kind {
	case "writer", "file":
		o.via = []string{"direct", "slab", "slab"}[r.IntN(3)]
	case "sink", "net":
		o.via = []string{"slab", "engine", "engine"}[r.IntN(3)]
	case "async", "http":
		o.via = "engine"
	default:
		o.via = []string{"engine", "client"}[r.IntN(2)]
	}
	o.name = fmt.Sprintf("%d-%s-%s", i, o.kind, o.via)
	if o.via != "direct" && r.IntN(3) == 0 && (runtime.GOOS == "linux" || runtime.GOOS == "darwin") {
		o.crash = filepath.Join(k.dir, fmt.Sprint(i, "-slabs"))
		o.name += "-crash"
	}
	if o.via == "engine" || o.via == "client" {
		if r.IntN(2) == 0 {
			o.spool = filepath.Join(k.dir, fmt.Sprint(i, "-spool"))
			o.name += "-spool"
		}
		o.help = []string{"", "", "handler", "lines", "sink"}[r.IntN(5)]
		o.grave = []string{"", "writer", "file"}[r.IntN(3)]
		o.poison = (o.kind == "sink" || o.kind == "async" || o.kind == "loki" || o.kind == "http") && r.IntN(3) == 0
		o.age = r.IntN(5) == 0
	}
	o.again = o.kind == "async" || o.kind == "forward" || o.spool != ""
	o.late = r.IntN(8) == 0 && o.kind != "loki"
	o.level = []slog.Leveler{nil, slog.LevelDebug, slog.LevelWarn, new(slog.LevelVar), new(slog.LevelVar), new(slog.LevelVar)}[r.IntN(6)]
	o.enc = []encode.Encoder{encode.JSON(nil), encode.JSON(nil), encode.Logfmt(nil), encode.Console(nil)}[r.IntN(4)]
	if o.kind == "forward" {
		var err error
		if o.enc, err = fluent.NewEncoder(nil); err != nil {
			k.t.Fatal(err)
		}
	}
	place := func(read func([]byte) (key, error)) *end {
		return &end{o: o, read: read, mood: mood{rng: testkit.Rand(r.Uint64())}, bad: func(key) bool { return false }}
	}
	o.fall, o.graveyard = place(readToken), place(readToken)
	switch o.kind {
	case "forward":
		o.dest = place(readWith(forwardCodec))
		o.forward = &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) { o.dest.door().serve(n, c) }}
	case "loki", "http":
		o.dest = place(readToken)
	default:
		o.dest = place(readWith(o.enc.Codec()))
	}
	if o.kind == "net" {
		o.net = new(testkit.Network)
		o.peer = o.dest.listen(o.net, "peer:1")
	}
	if o.poison {
		o.dest.bad = func(k key) bool { return k.who%3 == 0 && k.n%7 == 3 }
	}
	o.coded = r.IntN(3) > 0 || o.kind == "forward" || o.kind == "loki"
	if o.grave == "file" {
		o.gravePath = filepath.Join(k.dir, fmt.Sprint(i, "-dead"))
	}
	return o
}

// slabs returns options of the slabs for this life.
func (o *out) slabs() *slab.Options {
	r := o.rng
	policy := func() slab.WhenFull {
		return []slab.WhenFull{slab.Block(), slab.BlockFor(20 * time.Millisecond), slab.DropNewest(), slab.DropOldest()}[r.IntN(4)]
	}
	so := &slab.Options{
		Name: o.name, SlabBytes: 512 << r.IntN(4), SlabCount: 2 + r.IntN(6), MaxRecord: 4000,
		FlushInterval: []time.Duration{-1, time.Millisecond, 50 * time.Millisecond}[r.IntN(3)],
		WhenFull:      policy(), OnError: quiet,
	}
	if o.spool != "" && r.IntN(2) == 0 {
		so.WhenFull = slab.Spill()
	}
	if r.IntN(3) == 0 {
		so.ImportantWhenFull = policy()
	}
	if r.IntN(3) == 0 {
		so.Reserve = r.IntN(so.SlabCount)
	}
	if r.IntN(5) == 0 {
		so.SlabRecords = 2 + r.IntN(9)
	}
	if o.coded {
		so.Codec = o.enc.Codec()
	}
	if o.crash != "" {
		so.Crash = &slab.Crash{Dir: o.crash, Required: true}
	}
	return so
}

func (o *out) retry() *deliver.RetryOptions {
	ro := &deliver.RetryOptions{Min: time.Millisecond, Max: time.Second, FatalDelay: time.Second, MaxAge: -1}
	if o.age {
		ro.MaxAge = time.Minute
	}
	return ro
}

func (o *out) breaker() *deliver.BreakerOptions {
	return &deliver.BreakerOptions{Failures: 1 + o.rng.IntN(5), OpenMin: 100 * time.Millisecond, OpenMax: 2 * time.Second,
		FatalDelay: 2 * time.Second, ProbeRecords: 1 + o.rng.IntN(10), Successes: 1 + o.rng.IntN(2)}
}

// sheet returns a page for lines of JSON.
func (o *out) sheet(e *end) *page {
	p := &page{door: e.door()}
	o.sheets = append(o.sheets, p)
	return p
}

// helper returns the error handler, nil if there is none.
func (o *out) helper() deliver.ErrorHandler {
	switch o.help {
	case "handler":
		return o.fall.door()
	case "lines":
		return deliver.JSONLines(o.sheet(o.fall))
	case "sink":
		to := testkit.NewSink(o.fall.door().answer(true))
		return deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome { return to.Send(context.Background(), b) })
	}
	return nil
}

// undertaker returns the handler of refused records, nil if there is none or DeadLetterFile is set.
func (o *out) undertaker() deliver.ErrorHandler {
	if o.grave == "writer" {
		return deliver.DeadLetters(o.sheet(o.graveyard), o.name)
	}
	return nil
}

// behind puts an Output in front of dest, with all that it can have if that is o's way.
func (o *out) behind(dest deliver.Destination, codecs func(string, uint32) batch.Codec) io.WriteCloser {
	so := o.slabs()
	if o.via == "slab" {
		return o.plain(dest, so)
	}
	oo := &deliver.OutputOptions{
		Name: o.name, Codec: so.Codec, CodecFor: codecs, Slab: *so, SpoolDir: o.spool, DeadLetterFile: o.gravePath, OnError: quiet,
		Deliver: deliver.Options{
			Retry: o.retry(), Breaker: o.breaker(), Handler: o.helper(), DeadLetter: o.undertaker(), HandlerTimeout: handlerTimeout,
		},
	}
	if o.rng.IntN(2) == 0 {
		oo.Deliver.PendingLimit = o.rng.IntN(20)
	}
	if o.spool != "" {
		oo.Spool.SegmentBytes = 4 << 10 << o.rng.IntN(3)
		if o.rng.IntN(3) == 0 {
			oo.Spool.MaxBytes = 16<<10 + o.rng.Int64N(32<<10)
			oo.Spool.OverQuota = []string{"drop-oldest", "refuse-new"}[o.rng.IntN(2)]
		}
	}
	w, err := deliver.NewOutput(dest, oo)
	if err != nil {
		o.k.t.Fatal(err)
	}
	o.outputs = append(o.outputs, w)
	return w
}

// destOf is a destination that answers as a sink of package testkit does.
func destOf(send func(context.Context, *batch.Batch) batch.Outcome) deliver.Destination {
	return deliver.SendFunc(deliver.Traits{}, send)
}

// plain puts slabs in front of dest, with as few options as possible.
func (o *out) plain(dest deliver.Destination, so *slab.Options) io.WriteCloser {
	w, err := deliver.NewOutput(dest, &deliver.OutputOptions{Name: o.name, Codec: so.Codec, Slab: *so, OnError: quiet,
		Deliver: deliver.Options{Retry: &deliver.RetryOptions{Min: time.Millisecond, Max: 200 * time.Millisecond, MaxAge: -1}}})
	if err != nil {
		o.k.t.Fatal(err)
	}
	o.outputs = append(o.outputs, w)
	return w
}

func textCodec(contentType string, _ uint32) batch.Codec {
	c, _ := encode.CodecFor(contentType)
	return c
}

// open begins a life of o. It returns the encoder and the writer of an output.
func (o *out) open() (encode.Encoder, io.WriteCloser) {
	t := o.k.t
	o.ends, o.file, o.page, o.async, o.set = nil, nil, nil, nil, nil
	enc, w := o.enc, io.WriteCloser(nil)
	switch o.kind {
	case "writer":
		o.page = &page{door: o.dest.door(), direct: o.via == "direct"}
		w = struct {
			io.Writer
			io.Closer
		}{o.page, io.NopCloser(nil)}
	case "file":
		var err error
		if o.file, err = file.Open(o.path, &file.Options{RotateBytes: 1 << 40}); err != nil {
			t.Fatal(err)
		}
		w = o.file
	case "sink":
		w = o.behind(destOf(testkit.NewSink(o.dest.door().answer(false)).Send), textCodec)
	case "async":
		o.async = testkit.NewAsyncSink(o.dest.door().answer(true), 1+o.rng.IntN(4), testkit.Rand(o.rng.Uint64()), 300*time.Millisecond)
		w = o.behind(destOf(o.async.Send), textCodec)
	case "net":
		s, err := netsink.New(netsink.Config{Address: "tcp://peer:1", Dial: o.net.Dial, WriteTimeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		w = o.behind(s, textCodec)
	case "forward":
		w = o.openForward()
	case "loki":
		enc, w = o.openLoki()
	case "http":
		w = o.openHTTP()
	}
	if (o.kind == "writer" || o.kind == "file") && o.via == "slab" {
		w = o.plain(deliver.ToWriteCloser(w), o.slabs())
	}
	if o.late {
		slot, dest := forebay.NewSlot(10_000+o.rng.IntN(50_000), forebay.OnError(quiet)), w
		given := make(chan bool, 1)
		o.set = func() error {
			err := slot.Set(dest)
			given <- err == nil
			return err
		}
		o.ends = append([]func() error{func() error {
			select {
			case ok := <-given:
				if ok {
					return nil
				}
			default:
			}
			_ = dest.Close() // the slot never had it
			return nil
		}}, o.ends...)
		w = slot
	}
	return enc, w
}

func (o *out) openForward() io.WriteCloser {
	t, r := o.k.t, o.rng
	c := fluent.Config{
		Dial: o.forward.Dial, Window: 1 + r.IntN(4), FrameBytes: 100 << r.IntN(6), AckTimeout: ackTimeout,
		ReconnectMin: time.Millisecond, ReconnectMax: 100 * time.Millisecond,
	}
	if r.IntN(3) == 0 {
		c.Compress = "gzip"
	}
	if o.via == "engine" {
		client, err := fluent.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return o.behind(client, func(contentType string, _ uint32) batch.Codec {
			if c := fluent.Codec(); contentType == c.ContentType() {
				return c
			}
			c, _ := encode.CodecFor(contentType)
			return c
		})
	}
	so := o.slabs()
	d, err := fluent.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return o.front(d, func(to *deliver.OutputOptions) {
		to.Slab.SlabBytes, to.BufferBytes, to.Slab.MaxRecord, to.Slab.WhenFull = so.SlabBytes, so.SlabBytes*so.SlabCount, so.MaxRecord, so.WhenFull
		to.Slab.FlushInterval, to.Deliver.HandlerFirst = max(so.FlushInterval, time.Millisecond), true
	})
}

// front opens an output for dest with the options of o, and those that set sets.
func (o *out) front(dest deliver.Destination, set func(to *deliver.OutputOptions)) io.WriteCloser {
	limit := 0
	if o.rng.IntN(2) == 0 {
		limit = o.rng.IntN(20)
	}
	s, err := forebay.Open(forebay.To(dest, forebay.Name(o.name), forebay.OnError(quiet), forebay.Delivery(func(to *deliver.OutputOptions) {
		to.CrashDir, to.SpoolDir, to.DeadLetterFile, to.Deliver.PendingLimit = o.crash, o.spool, o.gravePath, limit
		to.Deliver.Retry, to.Deliver.Breaker, to.Deliver.Handler, to.Deliver.DeadLetter = o.retry(), o.breaker(), o.helper(), o.undertaker()
		set(to)
	})))
	if err != nil {
		o.k.t.Fatal(err)
	}
	return s
}

func (o *out) openLoki() (encode.Encoder, io.WriteCloser) {
	t, r := o.k.t, o.rng
	so := o.slabs()
	so.Codec = nil
	c := loki.Config{
		URL:         "http://loki.test",
		Labels:      map[string]string{"app": "walk"},
		Wire:        []string{"protobuf", "json", "json+gzip"}[o.i%3],
		BatchBytes:  200 << r.IntN(8),
		BatchAge:    []time.Duration{0, time.Millisecond, 500 * time.Millisecond}[r.IntN(3)],
		Concurrency: 1 + r.IntN(4),
		HTTP:        httpclient.Options{Client: &http.Client{Transport: o.dest.door()}, Timeout: 2 * time.Second},
		Line:        loki.Line{Body: []string{"json", "logfmt"}[r.IntN(2)]},
		Limits:      loki.Limits{MaxAge: -1, MaxFuture: -1},
	}
	if r.IntN(3) == 0 {
		c.BatchRecords = 1 + r.IntN(20)
	}
	if o.via == "engine" {
		p, err := loki.New(c)
		if err != nil {
			t.Fatal(err)
		}
		own := o.enc
		o.enc = p.Encoder()
		defer func() { o.enc = own }()
		return p.Encoder(), o.behind(p, p.CodecFor)
	}
	so.Crash = nil
	d, err := loki.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d.Encoder(), o.front(d, func(to *deliver.OutputOptions) { to.Slab = *so })
}

func (o *out) openHTTP() io.WriteCloser {
	r := o.rng
	c := httpsink.Config{
		URL:        "http://http.test/x",
		API:        []string{"ndjson", "array"}[o.i%2],
		BatchBytes: 200 << r.IntN(8),
		BatchAge:   []time.Duration{0, time.Millisecond, 500 * time.Millisecond}[r.IntN(3)],
		HTTP:       httpclient.Options{Client: &http.Client{Transport: o.dest.door()}, Timeout: 2 * time.Second},
	}
	if r.IntN(3) == 0 {
		c.BatchRecords = 1 + r.IntN(20)
	}
	d, err := httpsink.New(c)
	if err != nil {
		o.k.t.Fatal(err)
	}
	return o.behind(d, textCodec)
}

// kept is what is on disk of an output.
type kept struct {
	spool, slabs []key
}

func (k kept) len() int { return len(k.spool) + len(k.slabs) }

// disk returns what lies there for the next process.
func (o *out) disk() (d kept) {
	read := func(where string, p []byte) (key, bool) {
		k, err := readToken(p)
		if err != nil && err != errMarker {
			o.k.errorf("%s: %s: %v", o.name, where, err)
		}
		return k, err == nil
	}
	if o.spool != "" {
		for e, err := range diskqueue.Scan(o.spool, nil) {
			if err != nil {
				o.k.errorf("%s: spool: %v", o.name, err)
				return d
			}
			if e.Acked {
				continue
			}
			for _, r := range e.Batch.All() {
				if k, ok := read("spool", r.Data); ok {
					d.spool = append(d.spool, k)
				}
			}
		}
	}
	if o.crash == "" {
		return d
	}
	files, err := crashfile.List(o.crash)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		o.k.errorf("%s: %v", o.name, err)
	}
	for _, f := range files {
		im, err := crashfile.Read(f.Path)
		if err != nil {
			o.k.errorf("%s: %v", o.name, err)
			continue
		}
		if im.Damage() != "" || im.HeapOnly+im.Unreturned > 0 || f.Alive || f.Aside {
			o.k.errorf("%s: crash-safe file: %q, %d on the heap, %d not returned, alive %v, aside %v", o.name, im.Damage(), im.HeapOnly, im.Unreturned, f.Alive, f.Aside)
		}
		for _, r := range im.Records {
			if k, ok := read("crash-safe file", r.Data); ok {
				d.slabs = append(d.slabs, k)
			}
		}
	}
	return d
}

// collect notes what came to places that are files or peers.
func (o *out) collect() {
	o.fileLines(o.dest, o.path, &o.readFile, o.kind == "file")
	o.fileLines(o.graveyard, o.gravePath, &o.readGrave, o.gravePath != "")
	for _, p := range o.sheets {
		p.last()
	}
	if o.peer == nil {
		return
	}
	conns := o.peer.Got()
	for i, got := range conns[o.readConns:] {
		if i > 0 {
			o.dest.die()
		}
		p := &page{door: o.dest.door(), text: got}
		p.lines()
	}
	o.readConns = len(conns)
}

// setAside returns how many records may have come behind later ones because sessions ended at
// them. A peer that reads lines does not know at which record it has reset a connection.
func (o *out) setAside() (n uint64) {
	if o.kind == "net" {
		for _, w := range o.outputs {
			n += w.Stats().Deliver.Suspects
		}
	}
	return n
}

func (o *out) fileLines(e *end, path string, seen *int, is bool) {
	if !is {
		return
	}
	lines, err := readFiles(path)
	if err != nil {
		o.k.errorf("%s: %v", o.name, err)
		return
	}
	for _, line := range lines[*seen:] {
		e.confirm(e.door().take("", line))
	}
	*seen = len(lines)
}

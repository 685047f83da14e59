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

// An out is one output of a walk, with its destination, fallback and dead letters. Its kind is the
// same in all processes of a walk; sizes and policies change.
type out struct {
	k    *walk
	i    int
	name string
	rng  *rand.Rand

	kind        string // kind of destination: writer, file, sink, async, net, forward, loki, http
	via         string // kind of output: direct, slab (memory only), output (deliver.NewOutput with all options), client (forebay.Open)
	crash       string // directory of crash-safe slabs; empty: slabs in ordinary memory
	spool       string // directory of the spool; empty: no spool
	fallback    string // kind of error handler: "", handler, lines, sink
	deadLetters string // destination of dead letters: "", writer, file
	poison      bool   // the destination refuses some records
	expires     bool   // records expire after a minute
	mayRepeat   bool   // acknowledged records may arrive again, together with earlier records that failed
	level       slog.Leveler
	enc         encode.Encoder
	hasCodec    bool // the slabs have the codec of the records; if false, they hold lines of unknown content
	route       int

	dest, fallbackEnd *endpoint
	deadLetterEnd     *endpoint
	path              string // path of the log file
	deadLetterPath    string
	readFile          int // number of lines of the log file that were read
	readDeadLetters   int
	net               *testkit.Network
	peer              *testkit.Peer
	readConns         int
	dropped           batch.Drops // sum over all processes
	forward           *testkit.Forward
	outputs           []*deliver.Output // one for each process, for the kinds slab and output
	handlerLines      []*lineWriter     // the writers of handlers, of all processes

	// Fields of the current process:
	file       *file.File
	lineWriter *lineWriter
	async      *testkit.AsyncSink
	closers    []func() error // closes everything that the router does not close
}

func (o *out) String() string {
	return fmt.Sprintf("%s: route %d, %s, fallback %q, dead letters %q, poison %v, expires %v", o.name, o.route, o.enc.Codec().ContentType(), o.fallback, o.deadLetters, o.poison, o.expires)
}

func (o *out) heal() {
	o.dest.heal()
	o.fallbackEnd.heal()
	o.deadLetterEnd.heal()
}

// close closes the servers of the output.
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
		o.via = []string{"slab", "output", "output"}[r.IntN(3)]
	case "async", "http":
		o.via = "output"
	default:
		o.via = []string{"output", "client"}[r.IntN(2)]
	}
	o.name = fmt.Sprintf("%d-%s-%s", i, o.kind, o.via)
	if o.via != "direct" && r.IntN(3) == 0 && (runtime.GOOS == "linux" || runtime.GOOS == "darwin") {
		o.crash = filepath.Join(k.dir, fmt.Sprint(i, "-slabs"))
		o.name += "-crash"
	}
	if o.via == "output" || o.via == "client" {
		if r.IntN(2) == 0 {
			o.spool = filepath.Join(k.dir, fmt.Sprint(i, "-spool"))
			o.name += "-spool"
		}
		o.fallback = []string{"", "", "handler", "lines", "sink"}[r.IntN(5)]
		o.deadLetters = []string{"", "writer", "file"}[r.IntN(3)]
		o.poison = (o.kind == "sink" || o.kind == "async" || o.kind == "loki" || o.kind == "http") && r.IntN(3) == 0
		o.expires = r.IntN(5) == 0
	}
	o.mayRepeat = o.kind == "async" || o.kind == "forward" || o.spool != ""
	o.level = []slog.Leveler{nil, slog.LevelDebug, slog.LevelWarn, new(slog.LevelVar), new(slog.LevelVar), new(slog.LevelVar)}[r.IntN(6)]
	o.enc = []encode.Encoder{encode.JSON(nil), encode.JSON(nil), encode.Logfmt(nil), encode.Console(nil)}[r.IntN(4)]
	if o.kind == "forward" {
		var err error
		if o.enc, err = fluent.NewEncoder(nil); err != nil {
			k.t.Fatal(err)
		}
	}
	newEndpoint := func(read func([]byte) (key, error)) *endpoint {
		return &endpoint{o: o, read: read, behavior: behavior{rng: testkit.Rand(r.Uint64())}, rejects: func(key) bool { return false }}
	}
	o.fallbackEnd, o.deadLetterEnd = newEndpoint(readToken), newEndpoint(readToken)
	switch o.kind {
	case "forward":
		o.dest = newEndpoint(readWith(forwardCodec))
		o.forward = &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) { o.dest.forProcess().serve(n, c) }}
	case "loki", "http":
		o.dest = newEndpoint(readToken)
	default:
		o.dest = newEndpoint(readWith(o.enc.Codec()))
	}
	if o.kind == "net" {
		o.net = new(testkit.Network)
		o.peer = o.dest.listen(o.net, "peer:1")
	}
	if o.poison {
		o.dest.rejects = func(k key) bool { return k.goroutine%3 == 0 && k.n%7 == 3 }
	}
	o.hasCodec = r.IntN(3) > 0 || o.kind == "forward" || o.kind == "loki"
	if o.deadLetters == "file" {
		o.deadLetterPath = filepath.Join(k.dir, fmt.Sprint(i, "-dead"))
	}
	return o
}

// slabs returns random slab options for the current process.
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
	if o.hasCodec {
		so.Codec = o.enc.Codec()
	}
	if o.crash != "" {
		so.Crash = &slab.Crash{Dir: o.crash, Required: true}
	}
	return so
}

func (o *out) retry() *deliver.RetryOptions {
	ro := &deliver.RetryOptions{Min: time.Millisecond, Max: time.Second, FatalDelay: time.Second, MaxAge: -1}
	if o.expires {
		ro.MaxAge = time.Minute
	}
	return ro
}

func (o *out) breaker() *deliver.BreakerOptions {
	return &deliver.BreakerOptions{Failures: 1 + o.rng.IntN(5), OpenMin: 100 * time.Millisecond, OpenMax: 2 * time.Second,
		FatalDelay: 2 * time.Second, ProbeRecords: 1 + o.rng.IntN(10), Successes: 1 + o.rng.IntN(2)}
}

// newHandlerLines returns a writer of JSON lines for a handler.
func (o *out) newHandlerLines(e *endpoint) *lineWriter {
	p := &lineWriter{processEndpoint: e.forProcess()}
	o.handlerLines = append(o.handlerLines, p)
	return p
}

// errorHandler returns the error handler, or nil if there is none.
func (o *out) errorHandler() deliver.ErrorHandler {
	switch o.fallback {
	case "handler":
		return o.fallbackEnd.forProcess()
	case "lines":
		return deliver.JSONLines(o.newHandlerLines(o.fallbackEnd))
	case "sink":
		to := testkit.NewSink(o.fallbackEnd.forProcess().answer(true))
		return deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome { return to.Send(context.Background(), b) })
	}
	return nil
}

// deadLetterHandler returns the handler of refused records, or nil if there is none or
// DeadLetterFile is set.
func (o *out) deadLetterHandler() deliver.ErrorHandler {
	if o.deadLetters == "writer" {
		return deliver.DeadLetters(o.newHandlerLines(o.deadLetterEnd), o.name)
	}
	return nil
}

// newOutput returns an Output for dest: with random options for the kind "output", otherwise with
// memory only.
func (o *out) newOutput(dest deliver.Destination, codecs func(string, uint32) batch.Codec) io.WriteCloser {
	so := o.slabs()
	if o.via == "slab" {
		return o.newSlabOutput(dest, so)
	}
	oo := &deliver.OutputOptions{
		Name: o.name, Codec: so.Codec, CodecFor: codecs, Slab: *so, SpoolDir: o.spool, DeadLetterFile: o.deadLetterPath, OnError: quiet,
		Deliver: deliver.Options{
			Retry: o.retry(), Breaker: o.breaker(), Handler: o.errorHandler(), DeadLetter: o.deadLetterHandler(), HandlerTimeout: handlerTimeout,
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

// destOf returns a destination that calls send for each batch.
func destOf(send func(context.Context, *batch.Batch) batch.Outcome) deliver.Destination {
	return deliver.SendFunc(deliver.Traits{}, send)
}

// newSlabOutput returns an Output for dest with memory and as few other options as possible.
func (o *out) newSlabOutput(dest deliver.Destination, so *slab.Options) io.WriteCloser {
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

// open opens the output for the current process. It returns the encoder and the writer of the
// output.
func (o *out) open() (encode.Encoder, io.WriteCloser) {
	t := o.k.t
	o.closers, o.file, o.lineWriter, o.async = nil, nil, nil, nil
	enc, w := o.enc, io.WriteCloser(nil)
	switch o.kind {
	case "writer":
		o.lineWriter = &lineWriter{processEndpoint: o.dest.forProcess(), direct: o.via == "direct"}
		w = struct {
			io.Writer
			io.Closer
		}{o.lineWriter, io.NopCloser(nil)}
	case "file":
		var err error
		if o.file, err = file.Open(o.path, &file.Options{RotateBytes: 1 << 40}); err != nil {
			t.Fatal(err)
		}
		w = o.file
	case "sink":
		w = o.newOutput(destOf(testkit.NewSink(o.dest.forProcess().answer(false)).Send), textCodec)
	case "async":
		o.async = testkit.NewAsyncSink(o.dest.forProcess().answer(true), 1+o.rng.IntN(4), testkit.Rand(o.rng.Uint64()), 300*time.Millisecond)
		w = o.newOutput(destOf(o.async.Send), textCodec)
	case "net":
		s, err := netsink.New(netsink.Config{Address: "tcp://peer:1", Dial: o.net.Dial, WriteTimeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		w = o.newOutput(s, textCodec)
	case "forward":
		w = o.openForward()
	case "loki":
		enc, w = o.openLoki()
	case "http":
		w = o.openHTTP()
	}
	if (o.kind == "writer" || o.kind == "file") && o.via == "slab" {
		w = o.newSlabOutput(deliver.ToWriteCloser(w), o.slabs())
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
	if o.via == "output" {
		client, err := fluent.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return o.newOutput(client, func(contentType string, _ uint32) batch.Codec {
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
	return o.openOutput(d, func(to *deliver.OutputOptions) {
		to.Slab.SlabBytes, to.BufferBytes, to.Slab.MaxRecord, to.Slab.WhenFull = so.SlabBytes, so.SlabBytes*so.SlabCount, so.MaxRecord, so.WhenFull
		to.Slab.FlushInterval, to.Deliver.HandlerFirst = max(so.FlushInterval, time.Millisecond), true
	})
}

// openOutput opens an output for dest with forebay.Open and random options, which the function set
// then changes.
func (o *out) openOutput(dest deliver.Destination, set func(to *deliver.OutputOptions)) io.WriteCloser {
	limit := 0
	if o.rng.IntN(2) == 0 {
		limit = o.rng.IntN(20)
	}
	s, err := forebay.Open(forebay.To(dest, forebay.Name(o.name), forebay.OnError(quiet), forebay.Delivery(func(to *deliver.OutputOptions) {
		to.CrashDir, to.SpoolDir, to.DeadLetterFile, to.Deliver.PendingLimit = o.crash, o.spool, o.deadLetterPath, limit
		to.Deliver.Retry, to.Deliver.Breaker, to.Deliver.Handler, to.Deliver.DeadLetter = o.retry(), o.breaker(), o.errorHandler(), o.deadLetterHandler()
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
		HTTP:        httpclient.Options{Client: &http.Client{Transport: o.dest.forProcess()}, Timeout: 2 * time.Second},
		Line:        loki.Line{Body: []string{"json", "logfmt"}[r.IntN(2)]},
		Limits:      loki.Limits{MaxAge: -1, MaxFuture: -1},
	}
	if r.IntN(3) == 0 {
		c.BatchRecords = 1 + r.IntN(20)
	}
	if o.via == "output" {
		p, err := loki.New(c)
		if err != nil {
			t.Fatal(err)
		}
		own := o.enc
		o.enc = p.Encoder()
		defer func() { o.enc = own }()
		return p.Encoder(), o.newOutput(p, nil)
	}
	so.Crash = nil
	d, err := loki.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d.Encoder(), o.openOutput(d, func(to *deliver.OutputOptions) { to.Slab = *so })
}

func (o *out) openHTTP() io.WriteCloser {
	r := o.rng
	c := httpsink.Config{
		URL:        "http://http.test/x",
		API:        []string{"ndjson", "array"}[o.i%2],
		BatchBytes: 200 << r.IntN(8),
		BatchAge:   []time.Duration{0, time.Millisecond, 500 * time.Millisecond}[r.IntN(3)],
		HTTP:       httpclient.Options{Client: &http.Client{Transport: o.dest.forProcess()}, Timeout: 2 * time.Second},
	}
	if r.IntN(3) == 0 {
		c.BatchRecords = 1 + r.IntN(20)
	}
	d, err := httpsink.New(c)
	if err != nil {
		o.k.t.Fatal(err)
	}
	return o.newOutput(d, textCodec)
}

// A leftover lists the records of an output on disk.
type leftover struct {
	spool, slabs []key
}

func (k leftover) len() int { return len(k.spool) + len(k.slabs) }

// readDisk reads the records on disk that the next process will find.
func (o *out) readDisk() (d leftover) {
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

// collect adds the records in files and from TCP connections to the arrivals.
func (o *out) collect() {
	o.fileLines(o.dest, o.path, &o.readFile, o.kind == "file")
	o.fileLines(o.deadLetterEnd, o.deadLetterPath, &o.readDeadLetters, o.deadLetterPath != "")
	for _, p := range o.handlerLines {
		p.receiveUnterminated()
	}
	if o.peer == nil {
		return
	}
	conns := o.peer.Got()
	for i, got := range conns[o.readConns:] {
		if i > 0 {
			o.dest.noteDeath()
		}
		p := &lineWriter{processEndpoint: o.dest.forProcess(), text: got}
		p.receiveLines()
	}
	o.readConns = len(conns)
}

// parkedCount returns how many records may have arrived after later ones because they were set
// aside. The endpoint does not know which records these are, because a TCP server does not know at
// which record it has reset a connection.
func (o *out) parkedCount() (n uint64) {
	if o.kind == "net" {
		for _, w := range o.outputs {
			n += w.Stats().Deliver.Suspects
		}
	}
	return n
}

func (o *out) fileLines(e *endpoint, path string, seen *int, enabled bool) {
	if !enabled {
		return
	}
	lines, err := readFiles(path)
	if err != nil {
		o.k.errorf("%s: %v", o.name, err)
		return
	}
	for _, line := range lines[*seen:] {
		e.confirm(e.forProcess().receive("", line))
	}
	*seen = len(lines)
}

package fluent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	log "github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	_ "github.com/forebay-log/forebay/compress"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A daemon is a process of the real fluentd or Fluent Bit that receives events.
type daemon struct {
	name string
	path string
	addr string
	cmd  *exec.Cmd

	mu  sync.Mutex
	log bytes.Buffer
	got []event
}

// An event is an event in the output of a daemon.
type event struct {
	tag, time string
	record    map[string]any
	raw       string // the line of the output
}

// daemonOptions configures a daemon.
type daemonOptions struct {
	noKeepalive bool   // option deny_keepalive of fluentd
	key         string // shared key of the security section; "" means no section
	extra       string // additional lines of the input section
	onDisk      bool   // fluentd buffers acknowledged chunks in files
	outputs     string // match sections of fluentd before the one that matches all tags
}

// daemonPaths returns the source trees of fluentd listed in FLUENTD, separated as in PATH, and the
// program Fluent Bit named in FLUENTBIT. It skips the test if neither variable is set. RUBY is the
// Ruby interpreter for fluentd. FLUENTD_LIB lists directories searched before the library of the
// source tree. Ruby itself reads RUBYOPT.
func daemonPaths(t *testing.T) (out []string) {
	t.Helper()
	out = append(out, filepath.SplitList(os.Getenv("FLUENTD"))...)
	if path := os.Getenv("FLUENTBIT"); path != "" {
		out = append(out, path)
	}
	if len(out) == 0 {
		t.Skip("SKIPPED: neither FLUENTD (source trees of fluentd 1.16 and 1.19) nor FLUENTBIT (a program) is set")
	}
	return out
}

func isFluentd(path string) bool {
	_, err := os.Stat(filepath.Join(path, "bin", "fluentd"))
	return err == nil
}

// forEachDaemon starts each daemon with the options o and calls f with it.
func forEachDaemon(t *testing.T, o daemonOptions, f func(t *testing.T, d *daemon)) {
	for _, path := range daemonPaths(t) {
		if (o.noKeepalive || o.onDisk || o.outputs != "") && !isFluentd(path) {
			continue // Fluent Bit does not have this option
		}
		t.Run(filepath.Base(path), func(t *testing.T) { f(t, start(t, path, o)) })
	}
}

// rubyCommand returns the command line of Ruby with the library paths of the fluentd at path.
func rubyCommand(path string) []string {
	name := os.Getenv("RUBY")
	if name == "" {
		name = "ruby"
	}
	args := []string{name, "-W0"}
	for _, lib := range append(filepath.SplitList(os.Getenv("FLUENTD_LIB")), filepath.Join(path, "lib")) {
		args = append(args, "-I", lib)
	}
	return args
}

// whyNoZstd returns the reason why the daemon does not support zstd, or "" if it does. fluentd
// supports it from version 1.19 on, if the gem zstd-ruby is installed.
func (d *daemon) whyNoZstd() string {
	if !isFluentd(d.path) {
		return ""
	}
	code, err := os.ReadFile(filepath.Join(d.path, "lib", "fluent", "plugin", "compressable.rb"))
	if err != nil || !bytes.Contains(code, []byte("zstd")) {
		return "this version of fluentd does not support it"
	}
	args := append(rubyCommand(d.path), "-e", `require "zstd-ruby"; Zstd.compress("x")`)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Sprintf("the gem zstd-ruby is not installed: %.200s", out)
	}
	return ""
}

// start starts a daemon on a free port and waits until it listens.
func start(t *testing.T, path string, o daemonOptions) *daemon {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	d := &daemon{name: filepath.Base(path), path: path, addr: addr.String()}
	dir := t.TempDir()
	conf := filepath.Join(dir, "daemon.conf")
	text, args := fluentdConf(addr.Port, dir, o), []string(nil)
	if isFluentd(path) {
		args = append(rubyCommand(path), filepath.Join(path, "bin", "fluentd"), "--no-supervisor", "-c", conf)
	} else {
		text = fluentBitConf(addr.Port, dir, o)
		args = []string{path, "-c", conf}
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if o.onDisk { // without SIGXFSZ, a write beyond RLIMIT_FSIZE returns an error instead of ending fluentd
		args = append([]string{"/bin/sh", "-c", `trap "" XFSZ; exec "$@"`, "sh"}, args...)
	}
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Stderr = writer(func(p []byte) { d.appendLog(p) })
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Skipf("SKIPPED: %s does not start: %v", d.name, err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		d.readOutput(out)
	}()
	t.Cleanup(func() {
		d.cmd.Process.Signal(syscall.SIGCONT)
		d.cmd.Process.Kill()
		<-read
		d.cmd.Wait()
		if t.Failed() {
			d.mu.Lock()
			t.Logf("output of %s:\n%.4000s", d.name, d.log.String())
			d.mu.Unlock()
		}
	})
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if nc, err := net.Dial("tcp", d.addr); err == nil {
			nc.Close()
			return d
		}
		if time.Now().After(until) {
			t.Fatalf("%s does not listen", d.name)
		}
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

func (d *daemon) appendLog(p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log.Write(p)
}

// readOutput reads the output of the daemon and collects its events.
func (d *daemon) readOutput(r io.Reader) {
	for sc := bufio.NewReader(r); ; {
		line, err := sc.ReadString('\n')
		if e, ok := parse(line); ok && strings.HasPrefix(e.tag, "fluent.") { // an event of fluentd's own log
		} else if ok {
			d.mu.Lock()
			d.got = append(d.got, e)
			d.mu.Unlock()
		} else {
			d.appendLog([]byte(line))
		}
		if err != nil {
			return
		}
	}
}

// parse parses a line of the output: {"__tag":…,"__time":…,…} of fluentd, or {"date":…,"__tag":…,…}
// of Fluent Bit.
func parse(line string) (e event, ok bool) {
	if !strings.HasPrefix(line, "{") {
		return e, false
	}
	e.raw = strings.TrimSpace(line)
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber()
	if dec.Decode(&e.record) != nil {
		e.record = nil // the line is not valid JSON
		return e, true
	}
	e.tag = fmt.Sprint(e.record["__tag"])
	e.time = fmt.Sprint(e.record["__time"], e.record["date"])
	return e, true
}

func (d *daemon) events() []event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.got)
}

// await waits until the daemon has printed n events, and returns all events.
func (d *daemon) await(t *testing.T, n int) []event {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if got := d.events(); len(got) >= n || time.Now().After(until) {
			if len(got) < n {
				t.Errorf("%s has printed %d events, want %d", d.name, len(got), n)
			}
			return got
		}
	}
}

// numbersOf returns the field n of each event with the given tag.
func numbersOf(events []event, tag string) (out []int) {
	for _, e := range events {
		if e.tag == tag {
			n, _ := e.record["n"].(json.Number)
			k, _ := n.Int64()
			out = append(out, int(k))
		}
	}
	return out
}

func fluentdConf(port int, dir string, o daemonOptions) string {
	buffer := ""
	if o.onDisk {
		buffer = fmt.Sprintf("<buffer>\n@type file\npath %s\nflush_interval 0.3s\nflush_thread_interval 0.1\n</buffer>", filepath.Join(dir, "buffer"))
	}
	security := ""
	if o.key != "" {
		security = fmt.Sprintf("<security>\nself_hostname fluentd.test\nshared_key %s\n</security>", o.key)
	}
	if o.noKeepalive {
		o.extra += "\ndeny_keepalive true"
	}
	return fmt.Sprintf(`
<system>
  log_level info
</system>
<source>
  @type forward
  bind 127.0.0.1
  port %d
  %s
  %s
</source>
%s
<match **>
  @type stdout
  <inject>
    tag_key __tag
    time_key __time
    time_type string
    time_format %%s.%%N
  </inject>
  <format>
    @type json
  </format>
  %s
</match>
`, port, o.extra, security, o.outputs, buffer)
}

func fluentBitConf(port int, dir string, o daemonOptions) string {
	if o.key != "" {
		o.extra += "\n  Shared_Key " + o.key + "\n  Self_Hostname flb.test"
	}
	return fmt.Sprintf(`
[SERVICE]
  Flush 0.2
  Grace 1
  Log_Level info
[INPUT]
  Name forward
  Listen 127.0.0.1
  Port %d
  %s
[OUTPUT]
  Name stdout
  Match *
  Format json_lines
  Json_Date_Format epoch
`, port, o.extra)
}

func newLogger(t *testing.T, c fluent.Config, opts ...log.OutputOption) *fluent.Logger {
	t.Helper()
	l, err := fluent.NewLogger(c, append(opts, log.OnError(func(e batch.Event) { t.Log(e) }))...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeAll(t *testing.T, l *fluent.Logger, delivered int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rep, err := l.Close(ctx)
	if err != nil || rep.Delivered != uint64(delivered) || rep.Check() != nil {
		t.Errorf("%v: %s", err, rep.Account)
	}
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

type numbered struct {
	N    int    `json:"n"`
	Tag  string `json:"__tag"` // Fluent Bit does not print the tag, so it is also a field
	Text string `json:"text"`
}

// A daemon receives each event once and in order, in each mode and with each compression, with and
// without acknowledgements and a handshake.
func TestDaemonTakesEveryMode(t *testing.T) {
	for _, key := range []string{"", "s3cr3t"} {
		forEachDaemon(t, daemonOptions{key: key}, func(t *testing.T, d *daemon) {
			sent := 0
			for _, c := range []fluent.Config{
				{}, {NoAck: true}, {Mode: "forward"}, {Mode: "forward", NoAck: true}, {Mode: "message"}, {Mode: "message", NoAck: true},
				{Compress: "gzip"}, {Compress: "zstd"}, {IntegerTime: true},
			} {
				if why := d.whyNoZstd(); c.Compress == "zstd" && why != "" {
					t.Log("SKIPPED: zstd: " + why)
					continue
				}
				name := fmt.Sprintf("m.%s.%s.%v.%v", c.Mode, c.Compress, c.NoAck, c.IntegerTime)
				c.Servers, c.Auth.SharedKey = []string{d.addr}, fluent.Secret(key)
				l := newLogger(t, c)
				for i := range 300 {
					if err := l.Post(name, numbered{i, name, strings.Repeat("x", i)}); err != nil {
						t.Fatal(err)
					}
				}
				closeAll(t, l, 300)
				sent += 300
				if got := numbersOf(d.await(t, sent), name); !slices.Equal(got, upTo(300)) {
					t.Errorf("%s: %d events: %v", name, len(got), got)
				}
			}
		})
	}
}

func isFluentdName(name string) bool { return strings.HasPrefix(name, "fluentd") }

// With deny_keepalive, fluentd resets the connection after each message. It still receives each
// event once, and the account counts all events as delivered.
func TestDaemonKeepsNoConnection(t *testing.T) {
	for _, key := range []string{"", "s3cr3t"} {
		forEachDaemon(t, daemonOptions{key: key, noKeepalive: true}, func(t *testing.T, d *daemon) {
			sent := 0
			for _, noAck := range []bool{true, false} {
				name := fmt.Sprintf("k.%v", noAck)
				l := newLogger(t, fluent.Config{Servers: []string{d.addr}, NoAck: noAck, Auth: fluent.Auth{SharedKey: fluent.Secret(key)}})
				for i := range 30 {
					l.Post(name, numbered{i, name, ""})
					time.Sleep(150 * time.Millisecond)
				}
				closeAll(t, l, 30)
				sent += 30
				time.Sleep(time.Second) // enough time for unexpected events to arrive
				if got := numbersOf(d.await(t, sent), name); !slices.Equal(got, upTo(30)) {
					t.Errorf("NoAck %v: %v", noAck, got)
				}
			}
		})
	}
}

// The daemons print an EventTime value within a record as docs/RECEIVERS.md describes.
func TestDaemonAndEventTime(t *testing.T) {
	at := time.Unix(1_700_000_000, 123_456_789)
	forEachDaemon(t, daemonOptions{}, func(t *testing.T, d *daemon) {
		l := newLogger(t, fluent.Config{Servers: []string{d.addr}, TimeFields: "event-time"})
		l.Post("e", map[string]any{"n": 1, "__tag": "e", "at": at})
		closeAll(t, l, 1)
		e := d.await(t, 1)[0]
		want := `"at":1700000000,`
		if !isFluentdName(d.name) {
			want = `"at":"\x65\x53\xfffffff1` // the beginning of the value, which is not JSON
		}
		if !strings.Contains(e.raw, want) {
			t.Errorf("%s: %s, want %s", d.name, e.raw, want)
		}
		l = newLogger(t, fluent.Config{Servers: []string{d.addr}})
		l.Post("e", map[string]any{"n": 1, "__tag": "e", "at": at})
		closeAll(t, l, 1)
		got := d.await(t, 2)[1]
		if text, _ := got.record["at"].(string); text != at.Format(time.RFC3339Nano) {
			t.Errorf("rfc3339: %s", got.raw)
		}
	})
}

// If the first server hangs, the client changes to the second server after one missed
// acknowledgement, and its records arrive there.
func TestDaemonHangs(t *testing.T) {
	for _, path := range daemonPaths(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a, b := start(t, path, daemonOptions{}), start(t, path, daemonOptions{})
			l := newLogger(t, fluent.Config{Servers: []string{a.addr, b.addr}, AckTimeout: 2 * time.Second, Failback: -1})
			l.Post("h", numbered{0, "h", ""})
			if err := l.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			a.cmd.Process.Signal(syscall.SIGSTOP)
			began := time.Now()
			for i := 1; i < 100; i++ {
				l.Post("h", numbered{i, "h", ""})
			}
			got := b.await(t, 99)
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("the client changed servers after %s, want at most 6s", took)
			}
			if ns := numbersOf(got, "h"); !slices.Equal(ns, upTo(100)[1:]) {
				t.Errorf("%v", ns)
			}
			closeAll(t, l, 100)
		})
	}
}

// While its disk is full, fluentd cannot store chunks: it closes the connection or sends no
// acknowledgement. No record is dropped. All records arrive when the disk has space again.
func TestDaemonFullDisk(t *testing.T) {
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("SKIPPED: prlimit is not installed")
	}
	forEachDaemon(t, daemonOptions{onDisk: true}, func(t *testing.T, d *daemon) {
		setDiskLimit := func(limit string) {
			t.Helper()
			if out, err := exec.Command(prlimit, "--pid", fmt.Sprint(d.cmd.Process.Pid), "--fsize="+limit+":").CombinedOutput(); err != nil {
				t.Fatalf("prlimit: %v: %s", err, out)
			}
		}
		l := newLogger(t, fluent.Config{
			Servers:    []string{d.addr},
			FrameBytes: 2 << 10,
			AckTimeout: 2 * time.Second,
		}, log.Spool(t.TempDir()), log.WhenFull("spill"), log.Delivery(func(o *deliver.OutputOptions) {
			o.Deliver.Retry = &deliver.RetryOptions{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}
			o.Deliver.Breaker = &deliver.BreakerOptions{OpenMin: 50 * time.Millisecond, OpenMax: 500 * time.Millisecond}
		}))
		const n = 3000
		for i := range n {
			switch i {
			case 300:
				setDiskLimit("0")
			case 2000:
				setDiskLimit("unlimited")
			}
			if err := l.Post("d", numbered{i, "d", strings.Repeat("x", i%300)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		st := l.Output.Stats().Deliver
		if st.Retries == 0 {
			t.Error("no retries: the disk was never full")
		}
		closeAll(t, l, n)
		var got []int
		for range 500 {
			got = numbersOf(d.events(), "d")
			slices.Sort(got)
			if got = slices.Compact(got); len(got) >= n {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if !slices.Equal(got, upTo(n)) {
			t.Errorf("%d of %d arrived: %s", len(got), n, l.Account())
		}
		t.Logf("%d retries, %d suspects", st.Retries, st.Suspects)
	})
}

// The output of fluentd for one tag is full most of the time, and fluentd closes each connection
// over which a message with this tag arrives. The records of the tag are kept and none becomes a
// dead letter. The records of another tag are delivered.
//
// The remaining records stay in the spool, because after many refused messages fluentd 1.16 reports
// a full buffer even when it is empty.
func TestDaemonOneOutputFull(t *testing.T) {
	var seed atomic.Uint64
	seed.Store(testkit.Seed(t))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if testkit.Rand(seed.Add(1)).IntN(20) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	forEachDaemon(t, daemonOptions{outputs: fmt.Sprintf(`
<match failing>
  @type http
  endpoint %s
  <format>
    @type json
  </format>
  <buffer>
    @type memory
    chunk_limit_size 8k
    total_limit_size 16k
    flush_interval 0.2s
    flush_thread_interval 0.1
    retry_type periodic
    retry_wait 0.3s
    retry_forever true
    overflow_action throw_exception
  </buffer>
</match>`, web.URL)}, func(t *testing.T, d *daemon) {
		l := newLogger(t, fluent.Config{Servers: []string{d.addr}, FrameBytes: 2 << 10, AckTimeout: 5 * time.Second}, log.Spool(t.TempDir()), log.WhenFull("spill"))
		const n = 450 // takes 45 s, longer than the time after which a suspect is dropped
		for i := range n {
			for _, tag := range []string{"failing", "working"} {
				if err := l.Post(tag, numbered{i, "d", strings.Repeat("x", 400)}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		got := numbersOf(d.await(t, n*9/10), "working")
		slices.Sort(got)
		if len(slices.Compact(got)) < n*9/10 {
			t.Errorf("%d of %d records of the tag working arrived", len(got), n)
		}
		if a := l.Account(); a.Dropped.Total() > 0 || a.Pending.Total() == 0 {
			t.Errorf("while the output is full: %s", a)
		}
		st := l.Output.Stats().Deliver
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		rep, err := l.Close(ctx)
		if err != nil || rep.Delivered+rep.Pending.Spill != 2*n {
			t.Errorf("%v: %s", err, rep.Account)
		}
		t.Logf("%s, %d retries, %d suspects, %d trips", rep.Account, st.Retries, st.Suspects, st.Trips)
	})
}

// A flakyConn resets its connection in most writes while its field failing is true. Before the
// reset, it sends nothing, half of the message or all of it.
type flakyConn struct {
	*net.TCPConn
	failing *atomic.Bool
	n       *atomic.Int64
	seed    *atomic.Uint64 // of the next write
}

func (c flakyConn) Write(p []byte) (int, error) {
	rng := testkit.Rand(c.seed.Add(1))
	if !c.failing.Load() || rng.IntN(10) < 3 {
		return c.TCPConn.Write(p)
	}
	c.n.Add(1)
	if sent := rng.IntN(3) * len(p) / 2; sent > 0 {
		c.TCPConn.Write(p[:sent])
	}
	c.SetLinger(0)
	c.Close()
	return 0, syscall.ECONNRESET
}

// For 40 s, seven of ten messages cause a reset of the connection. A record that caused all of
// these resets would be dropped within that time. All records still arrive, and none becomes a dead
// letter.
func TestDaemonWithConnectionResets(t *testing.T) {
	forEachDaemon(t, daemonOptions{}, func(t *testing.T, d *daemon) {
		var failing atomic.Bool
		var resets atomic.Int64
		var seed atomic.Uint64
		seed.Store(testkit.Seed(t))
		l := newLogger(t, fluent.Config{
			FrameBytes: 2 << 10,
			AckTimeout: 2 * time.Second,
			Servers:    []string{d.addr},
			Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				nc, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return flakyConn{nc.(*net.TCPConn), &failing, &resets, &seed}, nil
			},
		}, log.Spool(t.TempDir()), log.WhenFull("spill"), log.Delivery(func(o *deliver.OutputOptions) {
			o.Deliver.Retry = &deliver.RetryOptions{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}
			o.Deliver.Breaker = &deliver.BreakerOptions{OpenMin: 50 * time.Millisecond, OpenMax: 500 * time.Millisecond}
		}))
		const n = 4500
		for i := range n {
			failing.Store(i >= 300 && i < 4300)
			if err := l.Post("d", numbered{i, "d", strings.Repeat("x", i%300)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		st := l.Output.Stats().Deliver
		closeAll(t, l, n)
		var got []int
		for range 500 {
			got = numbersOf(d.events(), "d")
			slices.Sort(got)
			if got = slices.Compact(got); len(got) >= n {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if a := l.Account(); !slices.Equal(got, upTo(n)) || a.Dropped.Total() > 0 || resets.Load() < 50 {
			t.Errorf("%d of %d arrived, %d resets: %s", len(got), n, resets.Load(), a)
		}
		t.Logf("%d resets, %d retries, %d suspects", resets.Load(), st.Retries, st.Suspects)
	})
}

// Fluent Bit closes the connection when it receives a record above its size limit. The client finds
// this record without losing others. After three such records of different sizes, the client has
// learned the limit, and a fourth one becomes a dead letter immediately.
func TestDaemonChunkLimit(t *testing.T) {
	if os.Getenv("FLUENTBIT") == "" {
		t.Skip("SKIPPED: FLUENTBIT is not set")
	}
	d := start(t, os.Getenv("FLUENTBIT"), daemonOptions{extra: "Buffer_Chunk_Size 32K\n  Buffer_Max_Size 128K"})
	var deadLetters bytes.Buffer
	l := newLogger(t, fluent.Config{
		Servers: []string{d.addr},
	}, log.Delivery(func(o *deliver.OutputOptions) {
		o.Deliver.DeadLetter = deliver.DeadLetters(&deadLetters, "flb")
		o.Deliver.Retry = &deliver.RetryOptions{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	}))
	post := func(n, size int) {
		if err := l.Post("c", numbered{n, "c", strings.Repeat("x", size)}); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(limit time.Duration, ok func(a batch.Account) bool) time.Duration {
		t.Helper()
		began := time.Now()
		for !ok(l.Account()) {
			if time.Since(began) > limit {
				t.Fatalf("after %s: %s", limit, l.Account())
			}
			time.Sleep(20 * time.Millisecond)
		}
		return time.Since(began)
	}
	post(0, 10)
	wait(10*time.Second, func(a batch.Account) bool { return a.Delivered == 1 })
	post(-1, 200<<10)
	for i := 1; i < 50; i++ {
		post(i, 100)
	}
	t.Logf("other records waited up to %s", wait(30*time.Second, func(a batch.Account) bool { return a.Delivered == 50 }))
	t.Logf("the first large record was dropped after %s", wait(4*time.Minute, func(a batch.Account) bool { return a.Dropped[batch.Poison] == 1 }))
	post(-2, 210<<10)
	post(-3, 220<<10)
	wait(4*time.Minute, func(a batch.Account) bool { return a.Dropped[batch.Poison] == 3 })
	if st := l.Driver.Stats(); st.LearnedRecord == 0 {
		t.Errorf("%+v", st)
	}
	post(-4, 230<<10)
	took := wait(30*time.Second, func(a batch.Account) bool { return a.Dropped[batch.Poison] == 4 })
	if took > 5*time.Second {
		t.Errorf("the fourth large record was dropped after %s, want at most 5s", took)
	}
	post(50, 10)
	closeAll(t, l, 51)
	// To test the server, the client repeatedly sends copies of the first record, so it may have
	// duplicates.
	var got []int
	for range 500 {
		got = numbersOf(d.events(), "c")
		slices.Sort(got)
		if got = slices.Compact(got); len(got) >= 51 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if !slices.Equal(got, upTo(51)) {
		t.Errorf("%v", got)
	}
}

// The server hangs while an error handler is set and 5,000 records of 1 KB are posted per second.
// No record is dropped. Records that the handler has not accepted arrive when the server continues.
func TestDaemonHangsWithErrorHandler(t *testing.T) {
	forEachDaemon(t, daemonOptions{}, func(t *testing.T, d *daemon) {
		const n = 20_000
		var mu sync.Mutex
		received := map[int]bool{}
		note := func(k int) {
			mu.Lock()
			defer mu.Unlock()
			received[k] = true
		}
		l := newLogger(t, fluent.Config{Servers: []string{d.addr}})
		l.ErrorHandler = deliver.JSONLines(writer(func(p []byte) {
			for line := range bytes.Lines(p) {
				var rec struct{ Record numbered }
				if err := json.Unmarshal(line, &rec); err != nil {
					t.Error(err)
				}
				note(rec.Record.N)
			}
		}))
		l.Post("h", numbered{0, "h", ""})
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.cmd.Process.Signal(syscall.SIGSTOP)
		body, began, longest := strings.Repeat("x", 1000), time.Now(), time.Duration(0)
		for i := 1; i < n; i++ {
			time.Sleep(time.Until(began.Add(time.Duration(i) * 200 * time.Microsecond)))
			start := time.Now()
			if err := l.Post("h", numbered{i, "h", body}); err != nil {
				t.Error(err)
			}
			longest = max(longest, time.Since(start))
		}
		d.cmd.Process.Signal(syscall.SIGCONT)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		rep, err := l.Close(ctx)
		if err != nil || rep.Dropped.Total() != 0 || rep.Handled == 0 || rep.Handled+rep.Delivered != n {
			t.Errorf("%v: %s", err, rep.Account)
		}
		t.Logf("%s, a Post took up to %s", rep.Account, longest)
		for _, k := range numbersOf(d.await(t, int(rep.Delivered)), "h") {
			note(k)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(received) != n {
			t.Errorf("%d of %d records are at the server or the handler", len(received), n)
		}
	})
}

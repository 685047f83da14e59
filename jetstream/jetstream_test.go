package jetstream

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
)

// Records arrive once and in order, on their subjects and with their ids as Nats-Msg-Id.
func TestRecordsArriveInOrderOnTheirSubjects(t *testing.T) {
	n := start(t, nil)
	s := stream(t, admin(t, n), nil)
	out, e := output(t, Config{Servers: n.ClientURL(), Subject: "logs.{app}.{level}", Stream: "LOGS"}, nil)
	const count = 10_000
	write(t, out, 0, count)
	flush(t, out)
	msgs := all(t, s)
	wantCount(t, numbers(t, msgs), count)
	for i, m := range msgs {
		if want := fmt.Sprintf("logs.app%d.info", i%3); m.subject != want {
			t.Fatalf("record %d is on %s, want %s", i, m.subject, want)
		}
		id, err := dedup.Parse([]byte(m.id))
		if err != nil || id.Ticket != uint64(i+1) {
			t.Fatalf("record %d is named %q, %v", i, m.id, err)
		}
	}
	report, err := out.Shutdown(t.Context())
	if err != nil || report.Account.Delivered != count {
		t.Errorf("%v, %v", report.Account, err)
	}
	if said := e.text(); said != "" {
		t.Error(said)
	}
}

// If a connection ends before the answers to records arrive, the records are sent again, and the
// stream stores them once.
func TestLostAnswersStoreRecordsOnce(t *testing.T) {
	n := start(t, nil)
	s := stream(t, admin(t, n), nil)
	p := newProxy(t, n)
	d, err := New(Config{Servers: p.url(), AckTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o := fastOptions(new(events))
	out, err := deliver.NewOutput(d, &o)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	write(t, out, 0, 100)
	flush(t, out)
	p.set(true, false)
	write(t, out, 100, 3000)
	await(t, "storing without an answer", func() bool {
		info, err := s.Info(t.Context())
		return err == nil && info.State.Msgs > 500
	})
	p.set(false, false)
	p.cut()
	flush(t, out)
	wantCount(t, numbers(t, all(t, s)), 3000)
	if stats := d.Stats(); stats.Duplicates == 0 || stats.Stored < 3000 || stats.Connects < 2 || !stats.Connected {
		t.Errorf("%+v", stats)
	}
}

// If a server hangs, the session ends after AckTimeout, even if the server still reads. Writers do
// not wait.
func TestHangingServerEndsTheSessionAfterAckTimeout(t *testing.T) {
	for name, discardRequests := range map[string]bool{"answers nothing": false, "reads nothing": true} {
		t.Run(name, func(t *testing.T) {
			n := start(t, nil)
			s := stream(t, admin(t, n), nil)
			p := newProxy(t, n)
			out, e := output(t, Config{Servers: p.url(), AckTimeout: 200 * time.Millisecond}, nil)
			write(t, out, 0, 10)
			flush(t, out)
			p.set(true, discardRequests)
			write(t, out, 10, 2000)
			await(t, "giving up", func() bool {
				return strings.Contains(e.text(), "has acknowledged none of") || strings.Contains(e.text(), "stale")
			})
			p.set(false, false)
			p.cut()
			flush(t, out)
			wantCount(t, numbers(t, all(t, s)), 2000)
		})
	}
}

// If a server answers pings but acknowledges no messages, the session ends after AckTimeout.
func TestMissingAcksEndTheSessionAfterAckTimeout(t *testing.T) {
	n := start(t, func(o *server.Options) { o.JetStream = false })
	conn, err := nats.Connect(n.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var answers atomic.Bool
	if _, err := conn.Subscribe("logs", func(m *nats.Msg) {
		if answers.Load() {
			_ = m.Respond([]byte(`{"stream":"LOGS","seq":1}`))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	out, e := output(t, Config{Servers: n.ClientURL(), AckTimeout: 200 * time.Millisecond}, nil)
	write(t, out, 0, 10)
	await(t, "giving up", func() bool { return strings.Contains(e.text(), "has acknowledged none of 10 messages for 200ms") })
	answers.Store(true)
	flush(t, out)
}

// Without a stream, records wait. They are delivered once the stream exists. With Config.Sole, they
// are delivered in order, even if the stream is created while messages are in flight.
func TestRecordsWaitForTheirStream(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	out, e := output(t, Config{Servers: n.ClientURL(), Sole: true}, nil)
	write(t, out, 0, 50)
	await(t, "the event", func() bool { return strings.Contains(e.text(), "no stream accepts the subject now") })
	s := stream(t, js, nil)
	flush(t, out)
	wantCount(t, numbers(t, all(t, s)), 50)
}

// Only the records that exceed the size limit of the server or of the stream become dead letters.
func TestTooLargeRecordsAreDeadLetters(t *testing.T) {
	n := start(t, func(o *server.Options) { o.MaxPayload = 8 << 10 })
	for name, c := range map[string]struct {
		most int32
		size int
		want string
	}{
		"stream": {1 << 10, 2 << 10, "message size exceeds maximum allowed (10054)"},
		"server": {-1, 9 << 10, "the server accepts messages of 8192"},
	} {
		for _, sole := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " sole ", sole), func(t *testing.T) {
				js := admin(t, n)
				s := stream(t, js, func(c2 *jetstream.StreamConfig) { c2.MaxMsgSize = c.most })
				defer func() { _ = js.DeleteStream(context.Background(), "LOGS") }()
				var mu sync.Mutex
				var why []string
				out, _ := output(t, Config{Servers: n.ClientURL(), Sole: sole}, func(o *deliver.OutputOptions) {
					o.Deliver.DeadLetter = deliver.ErrorHandlerFunc(func(cause error, b *batch.Batch) batch.Outcome {
						mu.Lock()
						defer mu.Unlock()
						why = append(why, fmt.Sprint(b.Len(), " ", cause))
						return batch.Outcome{}
					})
				})
				write(t, out, 0, 100)
				fmt.Fprintf(out, `{"i":-1,"pad":%q}`+"\n", strings.Repeat("x", c.size))
				write(t, out, 100, 200)
				flush(t, out)
				wantCount(t, numbers(t, all(t, s)), 200)
				report, err := out.Shutdown(t.Context())
				if len(why) != 1 || !strings.HasPrefix(why[0], "1 ") || !strings.Contains(why[0], c.want) {
					t.Errorf("dead letters: %q", why)
				}
				if err != nil || report.Account.Delivered != 200 {
					t.Errorf("%v, %v", report.Account, err)
				}
			})
		}
	}
}

// If a full stream rejects new messages, records wait, and none becomes a dead letter.
func TestFullStreamCondemnsNoRecord(t *testing.T) {
	n := start(t, nil)
	s := stream(t, admin(t, n), func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 100, jetstream.DiscardNew })
	out, e := output(t, Config{Servers: n.ClientURL(), Sole: true}, nil)
	write(t, out, 0, 300)
	await(t, "the event", func() bool { return strings.Contains(e.text(), "maximum messages exceeded") })
	var got []int
	for len(got) < 300 {
		msgs := numbers(t, all(t, s))
		got = append(got, msgs...)
		if len(msgs) == 0 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(uint64(len(got)+1))); err != nil { // removes the messages already read
			t.Fatal(err)
		}
	}
	wantCount(t, got, 300)
}

// If the subject belongs to a different stream from Config.Stream, the records are held.
func TestSubjectOfAnotherStreamHoldsRecords(t *testing.T) {
	n := start(t, nil)
	stream(t, admin(t, n), nil)
	out, e := output(t, Config{Servers: n.ClientURL(), Stream: "OTHER"}, nil)
	write(t, out, 0, 5)
	await(t, "the event", func() bool {
		return strings.Contains(e.text(), "hold") && strings.Contains(e.text(), "expected stream does not match")
	})
	if a := out.Stats().Account; a.Dropped.Total() > 0 || a.Delivered > 0 {
		t.Errorf("%v", a)
	}
}

// If the server repeats a password in an error, the reported error does not contain it.
func TestPasswordRepeatedByAServerIsHidden(t *testing.T) {
	for _, secret := range []string{"swordfish", "x1"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, `INFO {"server_id":"x","version":"2.11.0","proto":1,"max_payload":1000}`+"\r\n")
				bufio.NewReader(c).ReadString('\n')
				fmt.Fprintf(c, "-ERR 'bad token Bearer %s [%s]'\r\n", secret, secret)
				c.Close()
			}
		}()
		out, e := output(t, Config{Servers: "nats://shop:" + secret + "@" + l.Addr().String()}, func(o *deliver.OutputOptions) { o.CloseTimeout = 50 * time.Millisecond })
		write(t, out, 0, 1)
		await(t, "bad token", func() bool { return strings.Contains(e.text(), "bad token") })
		_, err = out.Shutdown(t.Context())
		l.Close()
		<-served
		if text := e.text() + fmt.Sprint(err); strings.Contains(text, secret) {
			t.Error("the secret is in: " + text)
		}
	}
}

// After refused credentials or a forbidden subject, all records are held. The event does not
// contain the secret.
func TestRefusedCredentialsHoldRecords(t *testing.T) {
	const secret = "s3cret-pass"
	n := start(t, func(o *server.Options) {
		perm := &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"logs.ok"}}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}
		o.Users = []*server.User{{Username: "shop", Password: secret, Permissions: perm}, {Username: "admin", Password: "x"}}
	})
	s := stream(t, admin(t, n, nats.UserInfo("admin", "x")), nil)
	host := n.Addr().String()
	out, _ := output(t, Config{Servers: "nats://shop:" + secret + "@" + host, Subject: "logs.ok"}, nil)
	write(t, out, 0, 5)
	flush(t, out)
	wantCount(t, numbers(t, all(t, s)), 5)
	for name, c := range map[string]struct {
		conf Config
		want string
	}{
		"password": {Config{Servers: "nats://shop:" + secret + "2@" + host}, "Authorization Violation"},
		"token":    {Config{Servers: "nats://" + host, Token: secret}, "Authorization Violation"},
		"subject":  {Config{Servers: "nats://shop:" + secret + "@" + host, Subject: "logs.no"}, "permissions violation"},
		"nobody":   {Config{Servers: "nats://shop:" + secret + "@127.0.0.1:1"}, "cannot connect to 127.0.0.1:1"},
		"no file":  {Config{Servers: "nats://" + host, Credentials: filepath.Join(t.TempDir(), "none.creds")}, "none.creds"},
		"no nkey":  {Config{Servers: "nats://" + host, NKey: filepath.Join(t.TempDir(), "none.nk")}, "cannot read NKey"},
	} {
		t.Run(name, func(t *testing.T) {
			out, e := output(t, c.conf, func(o *deliver.OutputOptions) { o.CloseTimeout = 50 * time.Millisecond })
			write(t, out, 0, 5)
			await(t, c.want, func() bool { return strings.Contains(strings.ToLower(e.text()), strings.ToLower(c.want)) })
			_, err := out.Shutdown(t.Context())
			if text := e.text() + fmt.Sprint(err); strings.Contains(text, secret) {
				t.Error("the secret is in: " + text)
			}
		})
	}
}

func TestConfigErrorNamesTheField(t *testing.T) {
	for want, c := range map[string]Config{
		"an address is empty":              {},
		"an address cannot be read":        {Servers: "nats://u:pass word@[x"},
		`unknown scheme "http"`:            {Servers: "http://h:1"},
		"a brace is not closed":            {Servers: "nats://h", Subject: "a.{b"},
		"no spaces and no wildcards":       {Servers: "nats://h", Subject: "a.>"},
		"an empty part":                    {Servers: "nats://h", Subject: "a..b"},
		`"a.b" is not a valid stream name`: {Servers: "nats://h", Stream: "a.b"},
		"AckTimeout is -1s: want more":     {Servers: "nats://h", AckTimeout: -time.Second},
		"DialTimeout is -1s: want more":    {Servers: "nats://h", DialTimeout: -time.Second},
		"jetstream: Servers: an address":   {Servers: "nats://h,,nats://i"},
	} {
		_, err := New(c)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pass word") {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

func TestCleanMakesOneSubjectToken(t *testing.T) {
	for in, want := range map[string]string{"": "unknown", "a.b c": "a_b_c", "*>": "__", "é\n\x7f": "é__"} {
		if got := string(clean(nil, []byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// The method read does not panic, whatever the answer. Only an answer with a sequence number and
// without an error means that the message is stored.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"stream":"LOGS","seq":1}`, `{"error":{"code":400,"err_code":10054,"description":"x"}}`, `{"error":null,"seq":1}`, "", "{", `{"seq":`} {
		f.Add([]byte(s))
	}
	d, err := New(Config{Servers: "nats://h"})
	if err != nil {
		f.Fatal(err)
	}
	s := &session{d: d}
	f.Fuzz(func(t *testing.T, data []byte) {
		what := s.read(&nats.Msg{Data: data})
		if what.open == nil && what.refused == nil && !strings.Contains(string(data), `"seq":`) {
			t.Errorf("%q is stored", data)
		}
	})
}

// With Config.Sole, each message contains the sequence number of the previous message, so that the
// server stores no record after one that is missing.
func TestSoleNamesThePreviousMessage(t *testing.T) {
	n := start(t, nil)
	s := stream(t, admin(t, n), nil)
	out, _ := output(t, Config{Servers: n.ClientURL(), Sole: true}, nil)
	write(t, out, 0, 20)
	flush(t, out)
	for seq := uint64(2); seq <= 20; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Header.Get(headerPrevious); got != strconv.FormatUint(seq-1, 10) {
			t.Errorf("message %d names %q", seq, got)
		}
	}
}

// If the server restarts while records are sent, they arrive once and in order.
func TestServerRestartKeepsOrder(t *testing.T) {
	for _, sole := range []bool{false, true} {
		t.Run(fmt.Sprint("sole ", sole), func(t *testing.T) {
			n := start(t, nil)
			js := admin(t, n, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
			s := stream(t, js, func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage })
			out, e := output(t, Config{Servers: n.ClientURL(), Sole: sole, AckTimeout: time.Second}, func(o *deliver.OutputOptions) { o.Slab.WhenFull = blocks })
			i := 0
			for range testkit.Rounds(t, 4, 100) {
				write(t, out, i, i+1000)
				n.stop()
				write(t, out, i+1000, i+2000)
				n.run(t)
				i += 2000
			}
			defer func() {
				if t.Failed() {
					t.Log(e.text())
				}
			}()
			flush(t, out)
			await(t, "a connection", func() bool { return js.Conn().IsConnected() })
			wantCount(t, numbers(t, all(t, s)), i)
		})
	}
}

// In a cluster of three servers, one server at a time is killed repeatedly. Each record arrives
// once, and with Config.Sole the records are in order.
func TestClusterKeepsOrder(t *testing.T) {
	nodes := cluster(t, 3)
	js := admin(t, nodes[0], nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	s := replicated(t, js)
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.ClientURL())
	}
	out, e := output(t, Config{Servers: strings.Join(urls, ","), Sole: true, AckTimeout: time.Second}, func(o *deliver.OutputOptions) {
		o.Slab.WhenFull = blocks
	})
	rng := testkit.Rand(testkit.Seed(t))
	rounds, i := testkit.Rounds(t, 2, 25), 0
	for range rounds {
		await(t, "a whole cluster", func() bool { return caughtUp(nodes) })
		write(t, out, i, i+2000)
		i += 2000
		n := nodes[rng.IntN(3)]
		if l := leader(nodes); l != nil && rng.IntN(2) == 0 {
			n = l
		}
		n.stop()
		write(t, out, i, i+2000)
		i += 2000
		n.run(t)
	}
	flush(t, out)
	await(t, "a consumer", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Info(ctx)
		return err == nil
	})
	wantCount(t, numbers(t, all(t, s)), i)
	if t.Failed() {
		t.Log(e.text())
	}
}

// A replicated stream rejects a message with a wrong Nats-Expected-Last-Sequence and continues to
// work. A message with a wrong Nats-Expected-Last-Msg-Id would stop the stream (ADR 50).
func TestReplicatedStreamRejectsWrongSequence(t *testing.T) {
	nodes := cluster(t, 3)
	js := admin(t, nodes[0])
	replicated(t, js)
	await(t, "a whole cluster", func() bool { return caughtUp(nodes) })
	publish := func(id, after string) error {
		m := nats.NewMsg("logs")
		m.Header.Set(headerID, id)
		if after != "" {
			m.Header.Set(headerPrevious, after)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := js.PublishMsg(ctx, m)
		return err
	}
	for _, p := range []struct{ id, after, want string }{{"a", "", ""}, {"b", "7", "wrong last sequence: 1"}, {"b", "1", ""}, {"c", "2", ""}} {
		if err := publish(p.id, p.after); (err == nil) != (p.want == "") || err != nil && !strings.Contains(err.Error(), p.want) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func leader(nodes []*node) *node {
	for _, n := range nodes {
		if n.Running() && n.JetStreamIsStreamLeader("$G", "LOGS") {
			return n
		}
	}
	return nil
}

// caughtUp reports whether each server has all messages. Only then may a server be stopped, because
// the cluster might otherwise have no majority to elect a leader.
func caughtUp(nodes []*node) bool {
	for _, n := range nodes {
		if !n.JetStreamIsCurrent() || !n.JetStreamIsStreamCurrent("$G", "LOGS") {
			return false
		}
	}
	return leader(nodes) != nil
}

// cluster starts the servers of a cluster.
func cluster(t *testing.T, count int) (nodes []*node) {
	t.Helper()
	ports := freePorts(t, 2*count)
	var routes []string
	for i := range count {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[count+i]))
	}
	for i := range count {
		nodes = append(nodes, start(t, func(o *server.Options) {
			o.ServerName, o.Port = fmt.Sprint("n", i), ports[i]
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[count+i]}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}))
	}
	return nodes
}

// replicated creates a stream with three replicas after the servers have formed the cluster.
func replicated(t *testing.T, js jetstream.JetStream) (s jetstream.Stream) {
	t.Helper()
	await(t, "making the stream", func() (ok bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var err error
		s, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "LOGS", Subjects: []string{"logs", "logs.>"}, Replicas: 3})
		return err == nil
	})
	return s
}

// A process with crash-safe memory is killed repeatedly. Every record whose log call has returned
// is stored exactly once, and the records of each process are in order.
func TestKilledWritersLoseNothing(t *testing.T) {
	n := start(t, nil)
	s := stream(t, admin(t, n), nil)
	dir := t.TempDir()
	rng := testkit.Rand(testkit.Seed(t))
	kills := testkit.Rounds(t, 8, 200)
	for range kills {
		c := testkit.NewChild("none", "FOREBAY_CHILD_DIR="+dir, "FOREBAY_CHILD_URL="+n.ClientURL())
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(100+rng.IntN(400)) * time.Millisecond)
		_ = c.Process.Kill()
		_ = c.Wait()
		if c.Failed() {
			t.Fatal(c.Said.String())
		}
	}
	// The next process delivers the records of the killed one.
	out, e := output(t, Config{Servers: n.ClientURL()}, func(o *deliver.OutputOptions) { o.CrashDir = filepath.Join(dir, "crash") })
	defer func() {
		if t.Failed() {
			t.Log(out.Stats().Account, e.text())
		}
	}()
	began := time.Now()
	await(t, "adopting", func() bool { return out.Stats().Account.Pending.Total() == 0 })
	flush(t, out)
	t.Logf("%d kills; what was left took %s: %v", kills, time.Since(began).Round(time.Millisecond), out.Stats().Account)
	indexes := numbers(t, all(t, s))
	data, err := os.ReadFile(filepath.Join(dir, "accepted"))
	if err != nil {
		t.Fatal(err)
	}
	accepted := len(data) / 8 // one line for each record whose log call has returned
	for i, got := range indexes {
		if i > 0 && got <= indexes[i-1] {
			t.Fatalf("record %d comes behind %d, at %d", got, indexes[i-1], i)
		}
	}
	came := map[int]bool{}
	for _, i := range indexes {
		came[i] = true
	}
	for k := range accepted {
		var i int
		fmt.Sscanf(string(data[8*k:8*k+8]), "%d", &i)
		if !came[i] {
			t.Fatalf("record %d was accepted and is missing", i)
		}
	}
	if accepted < 100 {
		t.Errorf("only %d records were accepted in %d lives", accepted, kills)
	}
}

// With DryRun, each record is written with its subject, and no record is sent.
func TestDryRunShowsSubjects(t *testing.T) {
	var shown strings.Builder
	out, _ := output(t, Config{Servers: "nats://nowhere", Subject: "logs.{app}", DryRun: &shown}, nil)
	write(t, out, 0, 2)
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	if want := "subject logs.app0: " + line(0) + "\nsubject logs.app1: " + line(1) + "\n"; shown.String() != want {
		t.Errorf("%s, want %s", shown.String(), want)
	}
}

// A consumer can authenticate with the options that ClientOptions returns.
func TestClientOptionsUseTheCredentials(t *testing.T) {
	n := start(t, func(o *server.Options) { o.Authorization = "tok3n" })
	opts, err := Config{Servers: n.ClientURL(), Token: "tok3n"}.ClientOptions()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(n.ClientURL(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := (Config{Servers: "h"}).ClientOptions(); err == nil {
		t.Error("a server without a scheme is taken")
	}
	if _, err := (Config{Servers: "nats://h", NKey: "/none"}).ClientOptions(); err == nil {
		t.Error("a key that is not there is taken")
	}
}

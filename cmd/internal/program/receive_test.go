package program

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/listentest"
	"github.com/forebay-log/forebay/cmd/internal/tool"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// A Share of n percent selects exactly n of 100 chunks, evenly distributed.
func TestShareSelectsExactPercentage(t *testing.T) {
	for _, of := range []float64{0, 1, 25, 33.3, 50, 99, 100} {
		s := &tool.Share{Of: of}
		n, last, gap := 0, -1, 0
		for i := range 1000 {
			if s.Next() {
				n++
				gap = max(gap, i-last)
				last = i
			}
		}
		if want := int(of * 10); n < want-1 || n > want || of > 0 && gap > int(100/of)+1 {
			t.Errorf("%v%%: %d of 1000, %d apart at most", of, n, gap)
		}
	}
}

func TestFaultInjectionSelectsActions(t *testing.T) {
	if (&tool.FaultInjection{}).Action() != nil {
		t.Error("no faults are injected, and there is an action")
	}
	bubble.Test(t, func(t *testing.T) {
		f := (&tool.FaultInjection{Reset: 50, Reject: 50, Stall: tool.Stall{D: time.Second}}).Action()
		start := time.Now()
		got := map[listen.Action]int{}
		for range 100 {
			got[f(context.Background())]++
		}
		if got[listen.Reset] != 50 || got[listen.Reject] != 25 || got[listen.Accept] != 25 || time.Since(start) != 100*time.Second {
			t.Errorf("%v in %v", got, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		start = time.Now()
		(&tool.FaultInjection{Stall: tool.Stall{Forever: true}}).Action()(ctx)
		if time.Since(start) != time.Hour {
			t.Errorf("for ever takes %v", time.Since(start))
		}
	})
}

func TestSlowConnLimitsReading(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		c := &input.SlowConn{Conn: server, PerSecond: 1000, Closed: make(chan struct{})}
		start := time.Now()
		go func() { client.Write(make([]byte, 5000)); client.Close() }()
		n, _ := io.Copy(io.Discard, c)
		if took := time.Since(start); n != 5000 || took != 5*time.Second {
			t.Errorf("%d bytes in %v", n, took)
		}
		// Close ends a Read that is pausing.
		client, server = net.Pipe()
		c = &input.SlowConn{Conn: server, PerSecond: 1, Closed: make(chan struct{})}
		go client.Write([]byte("xy"))
		start = time.Now()
		time.AfterFunc(time.Millisecond, func() { c.Close(); client.Close() })
		io.Copy(io.Discard, c)
		if took := time.Since(start); took != time.Millisecond {
			t.Errorf("Close takes %v", took)
		}
	})
}

// --slow is a limit, and TCP is not slower than the limit. At this limit, the message takes 16 ms.
// The time allowed for it is the time that a receive buffer of 4 KiB would need.
func TestSlowReaderReachesItsLimit(t *testing.T) {
	l := input.ForwardListener()
	l.On, l.Value = true, "0"
	var out bytes.Buffer
	r := &input.Receiver{C: &input.ListenConfig{Slow: 64 << 20, Listeners: []*input.Listener{l}}, Sink: new(listentest.Sink), Reporter: input.NewReporter(&out)}
	if err := r.Listen(); err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	c, err := net.Dial("tcp", strings.TrimSpace(strings.TrimPrefix(out.String(), "forebay: listening for Forward on ")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	msg := append(msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 4), "tag"), 1)
	msg = msgpack.AppendStr(msgpack.AppendStr(msgpack.AppendMapHeader(msg, 1), "text"), strings.Repeat("x", 1<<20))
	msg = msgpack.AppendStr(msgpack.AppendStr(msgpack.AppendMapHeader(msg, 1), "chunk"), "c")
	if _, err := c.Write(msg); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("no acknowledgement: %v", err)
	}
}

// Only a limited number of messages about refused clients is printed, so that clients cannot fill
// standard error.
func TestRefusalsAreFew(t *testing.T) {
	var out bytes.Buffer
	s := input.NewReporter(&out)
	now := time.Now()
	r := listen.Refusal{Listener: "forward", Peer: "p", Err: errors.New("why")}
	for range 1000 {
		s.RefusedAt(r, now)
	}
	if got := strings.Count(out.String(), "forebay: forward: p: refused: why\n"); got != input.Refusals {
		t.Errorf("%d lines", got)
	}
	out.Reset()
	s.RefusedAt(r, now.Add(2*time.Second))
	if got := out.String(); got != "forebay: forward: p: refused: why (and 990 refusals before, not shown)\n" {
		t.Error(got)
	}
}

func TestListenAddressesAreResolved(t *testing.T) {
	for in, want := range map[string]string{
		"":               "tcp 127.0.0.1:24224",
		"0":              "tcp 127.0.0.1:0",
		"24225":          "tcp 127.0.0.1:24225",
		":24225":         "tcp :24225",
		"h":              "tcp h:24224",
		"h:1":            "tcp h:1",
		"::1":            "tcp [::1]:24224",
		"[::1]":          "tcp [::1]:24224",
		"[::1]:1":        "tcp [::1]:1",
		"unix:/a/b":      "unix /a/b",
		"unix:":          "",
		"h:x":            "",
		"h:":             "",
		"h:65536":        "",
		"a:b:c":          "",
		"tcp://h:1":      "",
		"http://h:1/x:1": "",
	} {
		l := input.ForwardListener()
		l.Value = in
		network, address, err := l.Resolve()
		if got := network + " " + address; (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

// The address that a listener prints can be used by a client. A note is added if other machines can
// reach the listener.
func TestPrintedAddressIsUsable(t *testing.T) {
	const open = ", reachable from other machines"
	for _, tt := range []struct {
		l           *input.Listener
		network, at string
		secure      bool
		key         string
		want        string
	}{
		{input.ForwardListener(), "tcp", "127.0.0.1:1", false, "", "Forward on 127.0.0.1:1"},
		{input.ForwardListener(), "tcp", "[::1]:1", true, "", "Forward on [::1]:1 with TLS"},
		{input.ForwardListener(), "tcp", "[::]:1", false, "", "Forward on [::]:1" + open + " without a key"},
		{input.ForwardListener(), "tcp", "10.0.0.1:1", false, "k", "Forward on 10.0.0.1:1" + open},
		{input.ForwardListener(), "unix", "a", true, "", "Forward on unix:a"},
		{input.LokiListener(), "tcp", "127.0.0.1:1", false, "", "Loki's push API on http://127.0.0.1:1"},
		{input.LokiListener(), "tcp", "[::]:1", true, "k", "Loki's push API on https://[::]:1" + open + " without a key"},
		{input.SyslogListener(), "udp", "127.0.0.1:1", false, "", "syslog on udp://127.0.0.1:1"},
		{input.SyslogListener(), "unixgram", "a", false, "", "syslog on unixgram:a"},
	} {
		var out bytes.Buffer
		r := &input.Receiver{C: &input.ListenConfig{KeyFile: tt.key}, Reporter: input.NewReporter(&out)}
		if tt.secure {
			r.Tls = new(tls.Config)
		}
		r.Listening(tt.l, tt.network, tt.at)
		if want := "forebay: listening for " + tt.want + "\n"; out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}

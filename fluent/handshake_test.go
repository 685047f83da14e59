package fluent

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
)

// The handshake succeeds with the HELO of each known server. The HELOs differ in the type of the
// nonce (bin or str) and in whether the server has users and a key.
func TestHandshakeWithEveryServer(t *testing.T) {
	raw := []byte{0, 0xff, 1, 0xfe, 'n', 'o', 'n', 'c', 'e', 2, 3, 4, 5, 6, 7, 8}
	for _, tc := range []struct {
		name string
		auth testkit.ForwardAuth
		c    testConfig
	}{
		{"fluentd", testkit.ForwardAuth{Hostname: "s", Key: "k", Nonce: raw, BinNonce: true, Auth: raw}, testConfig{Config: Config{Auth: Auth{SharedKey: "k"}}}},
		{"fluentd with users", testkit.ForwardAuth{Hostname: "s", Key: "k", Nonce: raw, BinNonce: true, Auth: raw, User: "u", Password: "p"}, testConfig{Config: Config{Auth: Auth{SharedKey: "k", User: "u", Password: "p"}}}},
		{"Fluent Bit", testkit.ForwardAuth{Hostname: "s", Key: "k", Nonce: raw, LeaveKeepalive: true}, testConfig{Config: Config{Auth: Auth{SharedKey: "k"}}}},
		{"npm", testkit.ForwardAuth{Hostname: "s", Key: "k", Nonce: raw, BinNonce: true}, testConfig{Config: Config{Auth: Auth{SharedKey: "k"}}}},
		{"empty key", testkit.ForwardAuth{Hostname: "s", Nonce: raw}, testConfig{Config: Config{Auth: Auth{Secured: true}}}},
		{"long names", testkit.ForwardAuth{Hostname: "s", Key: "k", Nonce: raw, Auth: raw, User: strings.Repeat("u", 300), Password: "p"},
			testConfig{Config: Config{Auth: Auth{SharedKey: "k", User: strings.Repeat("u", 300), Password: "p", Hostname: strings.Repeat("h", 300)}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r received
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
				if ok, err := c.Handshake(&tc.auth); !ok {
					r.addErr(fmt.Errorf("refused: %v", err))
					return
				}
				r.ackAll(c)
			}}
			tc.c.Servers = []string{listen(t, f)}
			s := newTestClient(t, tc.c)
			sendOK(t, s, numbers(t, 0, 10))
			if !slices.Equal(r.get("forebay"), seq(0, 10)) {
				t.Error("records are missing")
			}
			r.check(t)
		})
	}
}

// The error of a failed handshake contains the cause and no secret. It is fatal if only a change of
// configuration can help.
func TestHandshakeErrorNamesTheCause(t *testing.T) {
	auth := &testkit.ForwardAuth{Hostname: "s", Key: "right-key", Nonce: []byte("nonce"), Auth: []byte("salt"), User: "u", Password: "right-password"}
	ask := func(c *testkit.ForwardConn, a *testkit.ForwardAuth) { c.Handshake(a); c.Raw() }
	pong := func(answer func(salt []byte) []byte) func(c *testkit.ForwardConn) {
		return func(c *testkit.ForwardConn) {
			c.Write(auth.HELO())
			raw, err := c.Raw()
			if err != nil {
				return
			}
			salt, _, _ := auth.CheckPing(raw)
			c.Write(answer(salt))
			c.Raw()
		}
	}
	good := testConfig{Config: Config{Auth: Auth{SharedKey: "right-key", User: "u", Password: "right-password"}}}
	for _, tc := range []struct {
		name   string
		script func(c *testkit.ForwardConn)
		c      testConfig
		fatal  bool
		text   string
	}{
		{"wrong key", func(c *testkit.ForwardConn) { ask(c, auth) }, testConfig{Config: Config{Auth: Auth{SharedKey: "wrong-key", User: "u", Password: "right-password"}}}, true, `sent "shared_key mismatch"`},
		{"wrong password", func(c *testkit.ForwardConn) { ask(c, auth) }, testConfig{Config: Config{Auth: Auth{SharedKey: "right-key", User: "u", Password: "wrong-password"}}}, true, "username/password mismatch"},
		{"own name", func(c *testkit.ForwardConn) { ask(c, auth) }, testConfig{Config: Config{Auth: Auth{SharedKey: "right-key", Hostname: "s"}}}, true, "same hostname"},
		{"closed without PONG", func(c *testkit.ForwardConn) { c.Write(auth.HELO()); c.Raw() }, good, false, "its shared key may differ"},
		{"reset without PONG", func(c *testkit.ForwardConn) { c.Write(auth.HELO()); c.Raw(); c.Reset() }, good, false, "its shared key may differ"},
		{"closed before HELO", func(c *testkit.ForwardConn) {}, good, false, "before its HELO"},
		{"PONG of another key", pong(func(salt []byte) []byte {
			other := *auth
			other.Key = "not-the-key"
			return other.PONG(salt, "")
		}), good, true, "does not know the shared key"},
		{"PING sent back", func(c *testkit.ForwardConn) {
			c.Write(auth.HELO())
			raw, err := c.Raw()
			if err != nil {
				return
			}
			var part [6][]byte
			_, rest, _ := msgpack.Next(raw)
			for i := range part {
				var tok msgpack.Token
				tok, rest, _ = msgpack.Next(rest)
				part[i] = tok.Bytes
			}
			b := msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 5), "PONG")
			b = msgpack.AppendStrs(msgpack.AppendBool(b, true), "", string(part[1]))
			c.Write(msgpack.AppendStr(b, string(part[3])))
			c.Raw()
		}, good, true, "its name is that of this client"},
		{"PONG too short", pong(func([]byte) []byte { return []byte{0x92, 0xa4, 'P', 'O', 'N', 'G', 0xc3} }), good, true, "does not know the shared key"},
		{"PONG garbage", pong(func([]byte) []byte { return []byte("PONG\n") }), good, false, "is not PONG"},
		{"HELO garbage", func(c *testkit.ForwardConn) { c.Write([]byte("220 mail\r\n")); c.Raw() }, good, false, "is not HELO"},
		{"HELO invalid", func(c *testkit.ForwardConn) { c.Write([]byte{0xc1}); c.Raw() }, good, false, "not the Forward protocol"},
		{"a reason that repeats secrets", pong(func(salt []byte) []byte {
			return auth.PONG(salt, "key right-key\nof u is not right-password "+strings.Repeat("x", 500))
		}), good, true, `sent "key (secret) of u is not (secret) xxx`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { tc.script(c) }}
			tc.c.Servers = []string{listen(t, f)}
			s := newTestClient(t, tc.c)
			err := s.sendOne(numbers(t, 0, 1)).err
			if err == nil || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v\nwant %s", err, tc.text)
			}
			if holds(err) != tc.fatal || errors.Is(err, errRefused) != tc.fatal {
				t.Errorf("fatal: %v", err)
			}
			for _, secret := range []string{"right-key", "wrong-key", "right-password", "wrong-password"} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the error %v contains the secret %s", err, secret)
				}
			}
		})
	}
}

// A server that does not know the shared key is refused. Its PONG may contain a digest of another
// length, a wrong digest, or the digest of the PING.
func TestPongWithoutProofOfKeyIsRefused(t *testing.T) {
	auth := &testkit.ForwardAuth{Hostname: "s", Key: "right-key", Nonce: []byte("nonce")}
	pong := func(name string, sum []byte, bin bool) []byte {
		b := msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 5), "PONG")
		b = msgpack.AppendStr(msgpack.AppendStr(msgpack.AppendBool(b, true), ""), name)
		if bin {
			return msgpack.AppendBin(b, sum)
		}
		return append(msgpack.AppendStrHeader(b, len(sum)), sum...)
	}
	type forgery struct {
		name  string
		works bool
		make  func(ping [][]byte, right []byte) []byte
	}
	forgeries := []forgery{
		{"right", true, func(_ [][]byte, right []byte) []byte { return pong("s", right, false) }},
		{"right, as bin", true, func(_ [][]byte, right []byte) []byte { return pong("s", right, true) }},
		{"our PING sent back", false, func(ping [][]byte, _ []byte) []byte { return pong(string(ping[1]), ping[3], false) }},
		{"our digest under another name", false, func(ping [][]byte, _ []byte) []byte { return pong("s", ping[3], false) }},
		{"our digest under no name", false, func(ping [][]byte, _ []byte) []byte { return pong("", ping[3], false) }},
		{"upper case", false, func(_ [][]byte, right []byte) []byte { return pong("s", bytes.ToUpper(right), false) }},
		{"nil instead of a digest", false, func(_ [][]byte, right []byte) []byte {
			b := pong("s", nil, false)
			b[len(b)-1] = 0xc0
			return b
		}},
		{"another name", false, func(_ [][]byte, right []byte) []byte { return pong("t", right, false) }},
		{"ok is no bool", false, func(_ [][]byte, right []byte) []byte {
			b := pong("s", right, false)
			b[6] = 1
			return b
		}},
	}
	for n := range 300 {
		forgeries = append(forgeries, forgery{fmt.Sprint(n, " bytes"), n == 128, func(_ [][]byte, right []byte) []byte {
			return pong("s", bytes.Repeat(right, 3)[:n], false)
		}})
	}
	for i := range 128 {
		forgeries = append(forgeries, forgery{fmt.Sprint("byte ", i), false, func(_ [][]byte, right []byte) []byte {
			sum := bytes.Clone(right)
			sum[i] ^= 1
			return pong("s", sum, false)
		}})
	}
	for _, tc := range forgeries {
		h := &handshaker{hostname: "me", key: "right-key"}
		hl := helo{nonce: auth.Nonce}
		const salt = "0123456789abcdef0123456789abcdef"
		ping := h.ping(salt, &hl)
		var parts [][]byte
		_, rest, _ := msgpack.Next(ping)
		for len(rest) > 0 {
			var tok msgpack.Token
			tok, rest, _ = msgpack.Next(rest)
			parts = append(parts, tok.Bytes)
		}
		right := []byte(digest(salt, "s", "nonce", "right-key"))
		err := h.checkPong(tc.make(parts, right), salt, auth.Nonce)
		if (err == nil) != tc.works {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err != nil && tc.name != "ok is no bool" && !errors.Is(err, errRefused) {
			t.Errorf("%s: %v is not errRefused", tc.name, err)
		}
	}
}

// HELO and PONG may arrive in any number of segments. Input that follows PONG is kept.
func TestHandshakeReadsFragmentedMessages(t *testing.T) {
	auth := &testkit.ForwardAuth{Hostname: "s", Key: "k", Nonce: []byte("nonce"), BinNonce: true}
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		drip := func(b []byte) {
			for _, x := range b {
				c.Write([]byte{x})
			}
		}
		drip(auth.HELO())
		raw, err := c.Raw()
		if err != nil {
			return
		}
		salt, _, _ := auth.CheckPing(raw)
		drip(auth.PONG(salt, ""))
		r.ackAll(c)
	}}
	s := newTestClient(t, testConfig{Config: Config{Dial: f.Dial, Auth: Auth{SharedKey: "k"}}})
	t.Cleanup(f.Close)
	sendOK(t, s, numbers(t, 0, 10))
	s.close()
	r.check(t)
}

// PING is sent by one call of Write, because Fluent Bit rejects a PING in two segments.
func TestPingIsOneWrite(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	a := &testkit.ForwardAuth{Hostname: "s", Key: "k", Nonce: []byte("nonce")}
	h := &handshaker{nc: client, hostname: "me", key: "k"}
	result := make(chan error, 1)
	go func() { _, err := h.do(); result <- err }()
	server.Write(a.HELO())
	buf := make([]byte, 4096)
	n, err := server.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	salt, refusal, err := a.CheckPing(buf[:n])
	if err != nil || refusal != "" {
		t.Fatalf("%q, %v", refusal, err)
	}
	server.Write(append(a.PONG(salt, ""), 0x81, 0xa1))
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(h.in, []byte{0x81, 0xa1}) {
		t.Errorf("input after PONG: got %x", h.in)
	}
}

// A client without Auth that receives a HELO keeps all records. The error asks for a shared key.
func TestHELOWithoutAuthIsFatal(t *testing.T) {
	a := &testkit.ForwardAuth{Nonce: []byte("n")}
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { c.Write(a.HELO()); c.Raw(); c.Raw() }}
	s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}})
	err := s.sendOne(numbers(t, 0, 1)).err
	if !holds(err) || !strings.Contains(err.Error(), "set Config.Auth.SharedKey") {
		t.Error(err)
	}
}

// A replay is a connection whose input is the content of r.
type replay struct {
	net.Conn
	r *bytes.Reader
}

func (r replay) Read(p []byte) (int, error)  { return r.r.Read(p) }
func (r replay) Write(p []byte) (int, error) { return len(p), nil }
func (r replay) SetDeadline(time.Time) error { return nil }

func FuzzHandshake(f *testing.F) {
	a := &testkit.ForwardAuth{Hostname: "s", Key: "k", Nonce: []byte("nonce")}
	f.Add(append(a.HELO(), a.PONG([]byte("salt"), "")...))
	f.Add(append(a.HELO(), a.PONG(nil, "no")...))
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &handshaker{nc: replay{r: bytes.NewReader(b)}, hostname: "me", key: "a long key that nobody guesses"}
		if _, err := h.do(); err == nil {
			t.Fatalf("PONG %x was accepted without the key", b)
		}
		msgpack.Skip(h.in)
	})
}

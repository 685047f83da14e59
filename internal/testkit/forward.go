package testkit

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// A Forward is a scripted server of the Forward protocol. The script of a connection reads messages
// and answers them, or injects faults. Clients connect to it through a listener ([Forward.Serve])
// or a pipe ([Forward.Dial]).
type Forward struct {
	// Script runs for each connection; n counts the connections from 0. The connection is closed
	// when Script returns.
	Script func(n int, c *ForwardConn)

	mu      sync.Mutex
	n       int
	conns   map[net.Conn]bool
	closed  bool
	running sync.WaitGroup
	lis     []net.Listener
}

// ForwardConn is the server's end of one connection.
type ForwardConn struct {
	net.Conn
	in    []byte
	limit int
}

// A ForwardMessage is one message of a client.
type ForwardMessage struct {
	Mode       string // PackedForward, Forward or Message
	Tag        string
	Entries    [][]byte // the entries, each [time, record]
	Size       int      // value of the option size, or -1
	Chunk      string   // value of the option chunk, or ""
	Compressed string   // value of the option compressed, or ""
	Payload    int      // number of bytes of the payload as received
	Total      int      // number of bytes of the message
}

// Serve accepts connections until Close.
func (f *Forward) Serve(l net.Listener) {
	f.mu.Lock()
	f.lis = append(f.lis, l)
	f.mu.Unlock()
	f.running.Add(1)
	go func() {
		defer f.running.Done()
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			f.start(nc)
		}
	}()
}

// Dial connects through an in-process pipe.
func (f *Forward) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	if !f.start(server) {
		return nil, errors.New("connection refused")
	}
	return client, nil
}

func (f *Forward) start(nc net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		nc.Close()
		return false
	}
	if f.conns == nil {
		f.conns = map[net.Conn]bool{}
	}
	f.conns[nc] = true
	n := f.n
	f.n++
	f.running.Add(1)
	go func() {
		defer f.running.Done()
		defer func() {
			nc.Close()
			f.mu.Lock()
			delete(f.conns, nc)
			f.mu.Unlock()
		}()
		f.Script(n, &ForwardConn{Conn: nc, limit: 64 << 20})
	}()
	return true
}

// Conns returns the number of connections so far.
func (f *Forward) Conns() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Close closes all connections and waits for the scripts.
func (f *Forward) Close() {
	f.mu.Lock()
	f.closed = true
	for _, l := range f.lis {
		l.Close()
	}
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// Raw reads one MessagePack value.
func (c *ForwardConn) Raw() ([]byte, error) {
	for {
		rest, err := msgpack.Skip(c.in)
		if err == nil {
			msg := c.in[:len(c.in)-len(rest)]
			c.in = bytes.Clone(rest)
			return msg, nil
		}
		if err != msgpack.ErrShort || len(c.in) > c.limit {
			return nil, fmt.Errorf("testkit: not the Forward protocol: %w", err)
		}
		buf := make([]byte, 64<<10)
		n, err := c.Read(buf)
		c.in = append(c.in, buf[:n]...)
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// Next reads one message.
func (c *ForwardConn) Next() (*ForwardMessage, error) {
	raw, err := c.Raw()
	if err != nil {
		return nil, err
	}
	return ParseForward(raw)
}

// ParseForward parses one message in any of the three modes. It returns an error for every
// deviation from the protocol.
func ParseForward(raw []byte) (*ForwardMessage, error) {
	m := &ForwardMessage{Size: -1, Total: len(raw), Mode: "PackedForward"}
	bad := func(what string) (*ForwardMessage, error) { return nil, errors.New("testkit: message: " + what) }
	t, b, err := msgpack.Next(raw)
	if err != nil || t.Kind != msgpack.Array || t.Len < 3 || t.Len > 4 {
		return bad("not an array of three or four")
	}
	parts := t.Len
	if t, b, err = msgpack.Next(b); err != nil || t.Kind != msgpack.Str {
		return bad("the tag is not a str")
	}
	m.Tag = string(t.Bytes)
	payload, after, err := msgpack.Next(b)
	if err != nil {
		return bad("the payload")
	}
	var data []byte
	switch payload.Kind {
	case msgpack.Bin:
		m.Payload, data, b = len(payload.Bytes), payload.Bytes, after
	case msgpack.Array:
		m.Mode = "Forward"
		rest := after
		for range payload.Len {
			if rest, err = msgpack.Skip(rest); err != nil {
				return bad("the entries")
			}
		}
		data, b = after[:len(after)-len(rest)], rest
	default: // skip the time
		m.Mode = "Message"
		rest, err := msgpack.Skip(after)
		if err != nil {
			return bad("the record")
		}
		data = append(msgpack.AppendArrayHeader(nil, 2), b[:len(b)-len(rest)]...)
		b = rest
	}
	if m.Mode != "Message" && parts != 3 {
		return bad("not an array of three")
	}
	options := 0
	if m.Mode != "Message" || parts == 4 {
		if t, b, err = msgpack.Next(b); err != nil || t.Kind != msgpack.Map {
			return bad("the option is not a map")
		}
		options = t.Len
	}
	for range options {
		var k, v msgpack.Token
		if k, b, err = msgpack.Next(b); err != nil || k.Kind != msgpack.Str {
			return bad("a key of the option is not a str")
		}
		if v, b, err = msgpack.Next(b); err != nil {
			return bad("the option")
		}
		switch string(k.Bytes) {
		case "size":
			m.Size = int(v.Num)
		case "chunk":
			if v.Kind != msgpack.Str {
				return bad("the chunk is not a str")
			}
			m.Chunk = string(v.Bytes)
		case "compressed":
			m.Compressed = string(v.Bytes)
		default:
			return bad("unknown option " + string(k.Bytes))
		}
	}
	if m.Compressed != "" {
		f, err := compression.Find(m.Compressed)
		if err != nil {
			return bad(err.Error())
		}
		z := f.NewReader()
		if err := z.Reset(bytes.NewReader(data)); err != nil {
			return bad(err.Error())
		}
		if data, err = io.ReadAll(z); err != nil {
			return bad(err.Error())
		}
	}
	if len(data) == 0 {
		return bad("an empty pack")
	}
	for len(data) > 0 {
		rest, err := msgpack.Skip(data)
		if err != nil {
			return bad("an entry: " + err.Error())
		}
		entry := data[:len(data)-len(rest)]
		if err := checkEntry(entry); err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, entry)
		data = rest
	}
	if m.Mode != "Message" && m.Size != len(m.Entries) {
		return bad(fmt.Sprintf("size is %d, there are %d entries", m.Size, len(m.Entries)))
	}
	return m, nil
}

// checkEntry returns an error for an entry that any of the known servers would reject.
func checkEntry(e []byte) error {
	t, b, err := msgpack.Next(e)
	if err != nil || t.Kind != msgpack.Array || t.Len != 2 {
		return errors.New("testkit: entry: not an array of two")
	}
	if t, b, err = msgpack.Next(b); err != nil {
		return err
	}
	if _, ok := msgpack.EventTime(&t); !ok && t.Kind != msgpack.Uint {
		return fmt.Errorf("testkit: entry: time is %v", t.Kind)
	}
	if t, _, err = msgpack.Next(b); err != nil || t.Kind != msgpack.Map {
		return fmt.Errorf("testkit: entry: record is %v", t.Kind)
	}
	if ok, err := msgpack.IsClean(b); !ok || err != nil {
		return fmt.Errorf("testkit: entry: record is not clean: %x", b)
	}
	return nil
}

// Ack acknowledges a chunk.
func (c *ForwardConn) Ack(chunk string) error {
	b := msgpack.AppendStr(msgpack.AppendStr(msgpack.AppendMapHeader(nil, 1), "ack"), chunk)
	_, err := c.Write(b)
	return err
}

// Reset closes the connection, with a RST if it is a TCP connection.
func (c *ForwardConn) Reset() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

// ForwardAuth configures the handshake with which a server authenticates clients.
type ForwardAuth struct {
	Hostname, Key  string
	User, Password string // empty if the server has no users
	Auth           []byte // salt for users in HELO; Fluentd sends one even without users
	Nonce          []byte
	BinNonce       bool
	NoKeepalive    bool // HELO contains keepalive: false
	LeaveKeepalive bool // HELO does not contain keepalive
}

// HELO returns the first message of the handshake.
func (a *ForwardAuth) HELO() []byte {
	b := msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 2), "HELO")
	n := 3
	if a.LeaveKeepalive {
		n--
	}
	b = msgpack.AppendMapHeader(b, n)
	b = msgpack.AppendStr(b, "nonce")
	if a.BinNonce {
		b = msgpack.AppendBin(b, a.Nonce)
	} else {
		b = append(msgpack.AppendStrHeader(b, len(a.Nonce)), a.Nonce...)
	}
	b = msgpack.AppendStr(b, "auth")
	b = append(msgpack.AppendStrHeader(b, len(a.Auth)), a.Auth...)
	if !a.LeaveKeepalive {
		b = msgpack.AppendBool(msgpack.AppendStr(b, "keepalive"), !a.NoKeepalive)
	}
	return b
}

// CheckPing parses a PING as strictly as Fluent Bit does, and returns the salt. If the client must
// be rejected, refusal is the reason.
func (a *ForwardAuth) CheckPing(raw []byte) (salt []byte, refusal string, err error) {
	t, b, err := msgpack.Next(raw)
	if err != nil || t.Kind != msgpack.Array || t.Len != 6 {
		return nil, "", errors.New("testkit: PING is not an array of six elements")
	}
	var part [6][]byte
	for i := range part {
		if t, b, err = msgpack.Next(b); err != nil || t.Kind != msgpack.Str {
			return nil, "", fmt.Errorf("testkit: part %d of PING is not a str", i)
		}
		part[i] = t.Bytes
	}
	switch {
	case string(part[0]) != "PING":
		return nil, "", errors.New("testkit: not a PING")
	case len(raw) >= 1024:
		return nil, "", fmt.Errorf("testkit: PING of %d bytes", len(raw))
	case string(part[1]) == a.Hostname:
		return part[2], "same hostname between input and output", nil
	case string(part[3]) != sum(string(part[2]), string(part[1]), string(a.Nonce), a.Key):
		return part[2], "shared_key mismatch", nil
	case a.User != "" && (string(part[4]) != a.User || string(part[5]) != sum(string(a.Auth), a.User, a.Password)):
		return part[2], "username/password mismatch", nil
	}
	return part[2], "", nil
}

// PONG returns the last message of the handshake.
func (a *ForwardAuth) PONG(salt []byte, refusal string) []byte {
	b := msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 5), "PONG")
	b = msgpack.AppendBool(b, refusal == "")
	b = msgpack.AppendStr(b, refusal)
	if refusal != "" {
		return msgpack.AppendStr(msgpack.AppendStr(b, ""), "")
	}
	b = msgpack.AppendStr(b, a.Hostname)
	return msgpack.AppendStr(b, sum(string(salt), a.Hostname, string(a.Nonce), a.Key))
}

func sum(parts ...string) string {
	h := sha512.New()
	for _, p := range parts {
		io.WriteString(h, p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Handshake performs the server's part of the handshake. It reports whether the client is
// authenticated.
func (c *ForwardConn) Handshake(a *ForwardAuth) (bool, error) {
	if _, err := c.Write(a.HELO()); err != nil {
		return false, err
	}
	raw, err := c.Raw()
	if err != nil {
		return false, err
	}
	salt, refusal, err := a.CheckPing(raw)
	if err != nil {
		return false, err
	}
	_, err = c.Write(a.PONG(salt, refusal))
	return refusal == "" && err == nil, err
}

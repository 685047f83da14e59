package fluent

import (
	"bytes"
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/forebay-log/forebay/internal/msgpack"
)

// The type helo is the message HELO, the first message of a server that requires authentication.
type helo struct {
	nonce     []byte // random bytes for the digests of the shared key
	auth      []byte // random bytes for the digest of the password
	keepalive bool   // false: the server closes the connection after one message
}

// A handshaker performs the handshake of section "Handshake Messages" in
// https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1, as implemented by
// fluentd, Fluent Bit and the npm package @fluent-org/logger:
//
//	server ──HELO──▶ client   nonce, auth, keepalive
//	client ──PING──▶ server   host name, salt, digest of the key; user, digest of the password
//	server ──PONG──▶ client   result, reason, host name, digest of the key
//
// The digests prove that both sides know the shared key without sending it. The caller sets the
// deadline of nc.
type handshaker struct {
	nc       net.Conn
	in       []byte // input that is not yet parsed; after do, input that follows the handshake
	hostname string // host name of this client
	key      string // shared key; may be empty
	user     string // "": no user authentication
	password string
}

// do performs the handshake. The result keepalive reports whether the server keeps the connection
// open after a message. The error wraps errRefused if the server rejected this client or did not
// prove that it knows the key.
func (h *handshaker) do() (keepalive bool, err error) {
	msg, err := h.read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return false, errors.New("the server closed the connection before its HELO")
		}
		return false, fmt.Errorf("no HELO from the server (it may not require a shared key): %w", err)
	}
	hl, ok := parseHelo(msg)
	if !ok {
		return false, unexpectedMessage("the server's first message is not HELO", slices.Concat(msg, h.in), &credentials{h.key, h.password})
	}
	// Each connection has a new salt, so that an observer cannot replay the digest of an earlier
	// PING.
	var random [16]byte
	rand.Read(random[:])
	salt := hex.EncodeToString(random[:])
	// PING is sent with one Write, because Fluent Bit rejects a PING that arrives in two
	// segments.
	if _, err := h.nc.Write(h.ping(salt, &hl)); err != nil {
		return false, fmt.Errorf("cannot send PING: %w", err)
	}
	msg, err = h.read()
	if err != nil {
		if isGone(err) {
			return false, fmt.Errorf("the server closed the connection instead of answering PING: its shared key may differ: %w", err)
		}
		return false, fmt.Errorf("no PONG from the server: %w", err)
	}
	if err = h.checkPong(msg, salt, hl.nonce); err == errNoPong {
		err = unexpectedMessage(err.Error(), slices.Concat(msg, h.in), &credentials{h.key, h.password})
	}
	return hl.keepalive, err
}

// read returns the next message. Any input after the message remains in h.in.
func (h *handshaker) read() ([]byte, error) {
	var chunk [2048]byte
	for {
		if len(h.in) > 0 {
			rest, err := msgpack.Skip(h.in)
			if err == nil {
				msg := h.in[:len(h.in)-len(rest)]
				h.in = bytes.Clone(rest)
				return msg, nil
			}
			if err != msgpack.ErrShort { // not MessagePack
				return nil, unexpectedMessage(noForward, h.in, &credentials{h.key, h.password})
			}
			if len(h.in) > maxMessage {
				return nil, fmt.Errorf("the server's message is longer than %d bytes", maxMessage)
			}
		}
		n, err := h.nc.Read(chunk[:])
		h.in = append(h.in, chunk[:n]...)
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// parseHelo parses a HELO; see section "HELO" of the specification. If msg is another message, ok
// is false. The fields nonce and auth may be str (Fluent Bit) or bin (fluentd). Unknown options are
// ignored. The default of keepalive is true. The result refers to the memory of msg.
func parseHelo(msg []byte) (hl helo, ok bool) {
	hl.keepalive = true
	t, msg, err := msgpack.Next(msg)
	if err != nil || t.Kind != msgpack.Array || t.Len < 2 {
		return hl, false
	}
	if t, msg, err = msgpack.Next(msg); err != nil || !t.Text() || string(t.Bytes) != "HELO" {
		return hl, false
	}
	if t, msg, err = msgpack.Next(msg); err != nil || t.Kind != msgpack.Map {
		return hl, false
	}
	for range t.Len {
		var k, v msgpack.Token
		if k, msg, err = msgpack.Next(msg); err != nil {
			return hl, false
		}
		value := msg
		if msg, err = msgpack.Skip(msg); err != nil {
			return hl, false
		}
		v, _, _ = msgpack.Next(value)
		switch {
		case !k.Text():
		case string(k.Bytes) == "nonce" && v.Text():
			hl.nonce = v.Bytes
		case string(k.Bytes) == "auth" && v.Text():
			hl.auth = v.Bytes
		case string(k.Bytes) == "keepalive" && v.Kind == msgpack.Bool:
			hl.keepalive = v.Bool
		}
	}
	return hl, true
}

// digest returns the SHA-512 digest of the concatenated parts, in hexadecimal.
func digest(parts ...string) string {
	h := sha512.New()
	for _, p := range parts {
		io.WriteString(h, p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ping returns the PING message; see section "PING" of the specification. The salt is text, because
// Fluent Bit does not accept the type bin. Without a user, the last two elements are empty strings.
func (h *handshaker) ping(salt string, hl *helo) []byte {
	m := msgpack.AppendArrayHeader(make([]byte, 0, 1024), 6)
	m = msgpack.AppendStr(m, "PING")
	m = msgpack.AppendStr(m, h.hostname)
	m = msgpack.AppendStr(m, salt)
	m = msgpack.AppendStr(m, digest(salt, h.hostname, string(hl.nonce), h.key))
	if h.user == "" {
		return msgpack.AppendStr(msgpack.AppendStr(m, ""), "")
	}
	m = msgpack.AppendStr(m, h.user)
	return msgpack.AppendStr(m, digest(string(hl.auth), h.user, h.password))
}

// errNoPong is the error that checkPong returns for a message that is not a PONG.
var errNoPong = errors.New("the server's answer to PING is not PONG")

// checkPong checks the PONG message; see section "PONG" of the specification. The server must
// accept this client and prove that it knows the shared key. The salt was sent in PING, and the
// nonce was received in HELO. The error is errNoPong or wraps errRefused.
func (h *handshaker) checkPong(msg []byte, salt string, nonce []byte) error {
	t, msg, err := msgpack.Next(msg)
	if err != nil || t.Kind != msgpack.Array || t.Len < 2 {
		return errNoPong
	}
	n := t.Len
	if t, msg, err = msgpack.Next(msg); err != nil || !t.Text() || string(t.Bytes) != "PONG" {
		return errNoPong
	}
	if t, msg, err = msgpack.Next(msg); err != nil || t.Kind != msgpack.Bool {
		return errNoPong
	}
	ok := t.Bool
	var texts [3]string // the elements after the result: reason, host, digest
	for i := range min(n-2, 3) {
		if t, msg, err = msgpack.Next(msg); err != nil {
			return errNoPong
		}
		texts[i] = string(t.Bytes)
	}
	if !ok {
		return fmt.Errorf("%w: it sent %q", errRefused, printable(texts[0], h.key, h.password))
	}
	// The comparison of digests below does not detect a PONG with this client's name, so it is
	// rejected here.
	if texts[1] == h.hostname {
		// The digest of such a PONG equals the digest of the PING, so a server can send it back
		// without knowing the key.
		return fmt.Errorf("%w: its name is that of this client, %q, so its answer does not authenticate it", errRefused, printable(h.hostname))
	}
	// The comparison takes constant time, so that its duration reveals nothing about the digest.
	want := digest(salt, texts[1], string(nonce), h.key)
	if subtle.ConstantTimeCompare([]byte(want), []byte(texts[2])) != 1 {
		return fmt.Errorf("%w: the server does not know the shared key", errRefused)
	}
	return nil
}

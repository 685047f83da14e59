package forward

import (
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// errLogin is wrapped by errors about failed logins. The cause is also sent to the client in the
// message PONG.
var errLogin = errors.New("login failed")

// handshake sends HELO, reads PING and answers with PONG. If it rejects the client, it returns an
// error.
func (s *Server) handshake(r *reader) error {
	nonce, salt := make([]byte, 16), []byte{}
	rand.Read(nonce)
	if s.c.User != "" {
		salt = make([]byte, 16)
		rand.Read(salt)
	}
	if err := r.Answer(helo(nonce, salt)); err != nil {
		return err
	}
	limits := *r.Limits
	limits.MessageBytes, limits.MessageTime = 16<<10, r.Limits.HelloTime
	defer func(l *listen.Limits) { r.Limits = l }(r.Limits)
	r.Limits = &limits
	for {
		msg, err := r.buffered()
		switch {
		case err != nil:
			return err
		case msg != nil:
			pong, err := s.pong(msg, nonce, salt)
			if e := r.Answer(pong); err == nil {
				err = e
			}
			return err
		}
		if err := r.Read(s.s.Reading()); err != nil {
			return err
		}
	}
}

// helo returns HELO, the first message of the handshake. An empty salt means that clients need no
// user.
func helo(nonce, salt []byte) []byte {
	b := msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 2), "HELO")
	b = msgpack.AppendMapHeader(b, 3)
	b = msgpack.AppendBin(msgpack.AppendStr(b, "nonce"), nonce)
	b = msgpack.AppendBin(msgpack.AppendStr(b, "auth"), salt)
	return msgpack.AppendBool(msgpack.AppendStr(b, "keepalive"), true)
}

// pong returns the answer to the message ping. If the client is rejected, it also returns an error.
func (s *Server) pong(ping, nonce, auth []byte) ([]byte, error) {
	var elems [6][]byte // the elements of ping: PING, host, salt, digest, user, digest of the password
	t, b, err := msgpack.Next(ping)
	ok := err == nil && t.Kind == msgpack.Array && t.Len == len(elems)
	for i := range elems {
		if ok {
			if t, b, err = msgpack.Next(b); err != nil || !t.Text() {
				ok = false
			}
			elems[i] = t.Bytes
		}
	}
	if !ok || string(elems[0]) != "PING" {
		return refusal("invalid ping message"), fmt.Errorf("%w: the client sent no PING, but a shared key is required", errLogin)
	}
	host, salt := elems[1], elems[2]
	key := []byte(s.c.Key)
	keyMatches := same(elems[3], digest(salt, host, nonce, key))
	userMatches := s.c.User == "" || same(elems[4], []byte(s.c.User)) && same(elems[5], digest(auth, []byte(s.c.User), []byte(s.c.Password)))
	switch {
	case !keyMatches:
		return refusal("shared_key mismatch"), fmt.Errorf("%w: the shared key does not match", errLogin)
	case !userMatches:
		return refusal("username/password mismatch"), fmt.Errorf("%w: the user or password does not match", errLogin)
	}
	serverHost := []byte(s.host)
	b = msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 5), "PONG")
	b = msgpack.AppendStr(msgpack.AppendBool(b, true), "")
	b = msgpack.AppendStr(b, s.host)
	return msgpack.AppendStr(b, string(digest(salt, serverHost, nonce, key))), nil
}

// refusal returns a PONG that rejects the client with the reason why.
func refusal(why string) []byte {
	b := msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 5), "PONG")
	b = msgpack.AppendStr(msgpack.AppendBool(b, false), why)
	return msgpack.AppendStr(msgpack.AppendStr(b, ""), "")
}

// digest returns the hexadecimal SHA-512 of the concatenated parts.
func digest(parts ...[]byte) []byte {
	h := sha512.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.AppendEncode(nil, h.Sum(nil))
}

// same compares a and b in constant time.
func same(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

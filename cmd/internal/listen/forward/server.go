// Package forward is the server of the Forward protocol, which Fluentd, Fluent Bit and
// many loggers speak. A chunk is acknowledged once the sink has committed it.
package forward

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// Source is the Source of the records.
const Source = "forward"

// Config is what a server does. Its Name is set by New.
type Config struct {
	listen.Config
	Secured        bool // begin with a handshake
	Key            string
	User, Password string // no User: everybody with the key
}

// Server is a server of the Forward protocol.
type Server struct {
	c    Config
	s    *listen.Server
	host string // its name in the handshake; a client with the same one would refuse it
}

// New returns a server.
func New(c Config) *Server {
	c.Name = Source
	var id [4]byte
	rand.Read(id[:])
	s := &Server{c: c, host: "forebay-" + hex.EncodeToString(id[:])}
	s.s = listen.NewServer(c.Config, s.serve)
	return s
}

// Serve accepts the connections of l until Close, and returns at once.
func (s *Server) Serve(l net.Listener) { s.s.Serve(l) }

// Stats returns the counts since the start.
func (s *Server) Stats() listen.Stats { return s.s.Stats() }

// Close ends the server. Chunks that have come are taken and acknowledged, if ctx lasts.
func (s *Server) Close(ctx context.Context) error { return s.s.Close(ctx) }

// A session is one connection.
type session struct {
	s       *Server
	r       reader
	d       unpacker
	text    *listen.Lease
	rec     listen.Record
	group   fields // of the group of records that the entry is in
	own     fields // of one record
	json    []byte
	commits *listen.Commits
}

// maxTaken is how many messages of a connection wait for a commit at most.
const maxTaken = 256

func (s *Server) serve(ctx context.Context, c *listen.Conn) error {
	l := s.s.Limits()
	n := &session{s: s, text: s.s.Lease(), commits: s.s.Commits(c, maxTaken)}
	n.r = reader{Reader: s.s.Reader(c)}
	n.d = unpacker{limit: l.MessageBytes, lease: s.s.Lease()}
	defer n.d.close()
	defer n.r.Release()
	if s.c.Secured {
		if err := s.handshake(&n.r); err != nil {
			return err
		}
	}
	for {
		if err := n.next(ctx); err != nil {
			if e := n.commits.End(ctx); e != nil { // earlier messages are accepted
				return e
			}
			return err
		}
	}
}

// next reads and accepts one message. Before it waits for more data, it starts a commit of the
// accepted messages, which continues during the wait.
func (n *session) next(ctx context.Context) error {
	msg, err := n.r.buffered()
	if err != nil {
		return err
	}
	if msg != nil {
		return n.take(ctx, msg)
	}
	n.commits.Begin(ctx)
	return n.r.Read(n.s.s.Reading())
}

// take passes the records of a message to the sink. The message is validated first, so that it is
// accepted as a whole or not at all.
func (n *session) take(ctx context.Context, raw []byte) error {
	defer n.d.shrink()
	asJSON := isJSON(raw)
	var err error
	if asJSON {
		if raw, err = n.d.fromJSON(ctx, raw); err != nil {
			return err
		}
	}
	m, err := parse(raw)
	if err == errKeepAlive {
		return nil
	}
	if err != nil {
		return err
	}
	defer n.text.Release()
	if asJSON && m.compressed != nil {
		return fault("a message in JSON cannot be compressed")
	}
	if m.compressed != nil && !m.alone {
		if m.entries, err = n.d.decompress(ctx, &m); err != nil {
			return err
		}
	}
	count, longest := 0, 0
	for b := m.entries; len(b) > 0; {
		e, err := m.entry(b)
		if err != nil {
			return err
		}
		if e.metadata != nil {
			if _, err := check(e.metadata, 0); err != nil {
				return fault("the metadata of a record is invalid: %v", err)
			}
		}
		if b, err = check(e.record, 0); err != nil {
			return fault("a record is invalid: %v", err)
		}
		longest = max(longest, len(e.metadata)+len(e.record)-len(b))
		if e.mark == isRecord {
			count++
		}
	}
	if err := n.text.Hold(ctx, largest(longest)); err != nil {
		return err
	}
	switch action, ok := n.s.s.Action(); {
	case !ok:
		return listen.ErrEnded
	case action == listen.Reset:
		n.r.Reset()
		return listen.ErrEnded
	case action == listen.Reject:
		return nil
	}
	n.rec = listen.Record{Source: Source, Tag: string(m.tag), JSON: true, Metadata: n.rec.Metadata[:0]}
	n.group.reset()
	for b := m.entries; len(b) > 0; {
		e, err := m.entry(b)
		if err != nil {
			return err
		}
		if e.mark != isRecord {
			if b, err = msgpack.Skip(e.record); err != nil {
				return fault("a group: %v", err)
			}
			if n.group.reset(); e.mark == groupStart {
				n.group.add(e.metadata, n.s.s.Limits().Labels, maxGroupBytes)
				n.group.add(e.record, n.s.s.Limits().Labels, maxGroupBytes)
			}
			continue
		}
		n.about(&e)
		if n.json, b, err = msgpack.AppendJSONText(n.json[:0], e.record); err != nil {
			return fault("a record is invalid: %v", err)
		}
		n.rec.Time, n.rec.Body = e.at, n.json
		if n.s.s.Sink().Put(ctx, &n.rec) != nil {
			return listen.ErrEnded
		}
	}
	if n.rec.Body = nil; cap(n.json) > keptJSON {
		n.json = nil
	}
	var ack func([]byte) []byte
	switch {
	case m.chunk == nil:
	case asJSON:
		ack = func(dst []byte) []byte { return appendJSONAck(dst, m.chunk) }
	default:
		ack = func(dst []byte) []byte { return appendAck(dst, m.chunk) }
	}
	return n.commits.Taken(ctx, 1, count, ack)
}

// keptJSON is how much memory for the text of records a connection keeps.
const keptJSON = 64 << 10

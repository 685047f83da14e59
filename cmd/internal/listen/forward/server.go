// Package forward is a server of the Forward protocol, which Fluentd, Fluent Bit and many loggers
// use. The server acknowledges a message when the sink has delivered or stored its records.
package forward

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// Source is the protocol name in the records and in messages of this listener.
const Source = "forward"

// Config configures a server. New sets the field Name.
type Config struct {
	listen.Config
	Secured        bool // if true, clients must log in
	Key            string
	User, Password string // if User is "", every client with the key may log in
}

// A Server receives messages of the Forward protocol. New creates it, and Close must be called at
// the end.
type Server struct {
	c    Config
	s    *listen.Server
	host string // name of the server in the handshake; random, so that it differs from the names of clients
}

// New returns a server that does not listen yet; see [Server.Serve].
func New(c Config) *Server {
	c.Name = Source
	var id [4]byte
	rand.Read(id[:])
	s := &Server{c: c, host: "forebay-" + hex.EncodeToString(id[:])}
	s.s = listen.NewServer(c.Config, s.serve)
	return s
}

// Serve starts to accept connections on l and returns at once. Close closes l.
func (s *Server) Serve(l net.Listener) { s.s.Serve(l) }

// Stats returns the counters since the start.
func (s *Server) Stats() listen.Stats { return s.s.Stats() }

// Close ends the server. Until ctx is done, messages that were already received are accepted and
// acknowledged.
func (s *Server) Close(ctx context.Context) error { return s.s.Close(ctx) }

// A session processes the messages of one connection.
type session struct {
	s            *Server
	r            reader
	d            unpacker
	text         *listen.Lease // memory of the field json
	rec          listen.Record
	groupFields  fields // metadata of the current group
	recordFields fields // metadata of the current record
	json         []byte // current record as JSON
	commits      *listen.Commits
}

// maxUncommitted is the maximum number of messages of a connection that wait for a commit.
const maxUncommitted = 256

// serve reads the messages of one connection until it ends. The listen.Server calls it on a
// separate goroutine for each connection.
func (s *Server) serve(ctx context.Context, c *listen.Conn) error {
	l := s.s.Limits()
	n := &session{s: s, text: s.s.Lease(), commits: s.s.Commits(c, maxUncommitted)}
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
			if e := n.commits.End(ctx); e != nil { // commit the messages before the failure
				return e
			}
			return err
		}
	}
}

// next reads and accepts one message. If it must wait for data, it first starts a commit of the
// accepted messages.
func (n *session) next(ctx context.Context) error {
	msg, err := n.r.buffered()
	if err != nil {
		return err
	}
	if msg != nil {
		return n.accept(ctx, msg)
	}
	n.commits.Begin(ctx)
	return n.r.Read(n.s.s.Reading())
}

// accept validates a message and passes its records to the sink. If a part of the message is
// invalid, none of its records is accepted.
func (n *session) accept(ctx context.Context, raw []byte) error {
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
	if m.compressed != nil && !m.single {
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
		if e.kind == isRecord {
			count++
		}
	}
	if err := n.text.Hold(ctx, maxJSONBytes(longest)); err != nil {
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
	n.groupFields.reset()
	for b := m.entries; len(b) > 0; {
		e, err := m.entry(b)
		if err != nil {
			return err
		}
		if e.kind != isRecord {
			if b, err = msgpack.Skip(e.record); err != nil {
				return fault("a group: %v", err)
			}
			if n.groupFields.reset(); e.kind == groupStart {
				n.groupFields.add(e.metadata, n.s.s.Limits().Labels, maxGroupBytes)
				n.groupFields.add(e.record, n.s.s.Limits().Labels, maxGroupBytes)
			}
			continue
		}
		n.setMetadata(&e)
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
	return n.commits.Add(ctx, 1, count, ack)
}

// keptJSON is the maximum size of the buffer for the JSON of records that a connection keeps.
const keptJSON = 64 << 10

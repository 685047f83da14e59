// Package syslog is a server of syslog (RFC 5424 and RFC 3164) over TCP, Unix sockets and
// datagrams. In a stream, a message either follows its length (octet counting) or ends at LF or
// NUL. Syslog has no acknowledgements, so messages may be lost unnoticed when a connection ends.
package syslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
)

// Source is the protocol name in the records and in messages of this listener.
const Source = "syslog"

// A Server receives syslog messages. New creates it, and Close must be called at the end.
type Server struct{ s *listen.Server }

// New returns a server. It sets the Name of c.
func New(c listen.Config) *Server {
	c.Name = Source
	s := &Server{}
	s.s = listen.NewServer(c, s.serve)
	return s
}

// Serve starts to accept connections on l and returns at once. Close closes l.
func (s *Server) Serve(l net.Listener) { s.s.Serve(l) }

// ServePackets starts to read datagrams from c and returns at once. Close closes c. While the sink
// is blocked, the kernel drops datagrams when its buffer is full.
func (s *Server) ServePackets(c net.PacketConn) {
	if s.s.CloseLater(c) {
		s.s.Go(func() { s.packets(c) })
	}
}

// Stats returns the counters since the start.
func (s *Server) Stats() listen.Stats { return s.s.Stats() }

// Close ends the server. Until ctx is done, messages that were already read are accepted.
func (s *Server) Close(ctx context.Context) error { return s.s.Close(ctx) }

// A session accepts the messages of one connection or datagram socket.
type session struct {
	s           *Server
	p           Parser
	uncommitted int             // number of messages accepted after the last commit began
	commits     *listen.Commits // nil for datagrams
}

// session returns a session that has not accepted any message.
func (s *Server) session() *session {
	return &session{s: s, p: Parser{MaxLabels: s.s.Limits().Labels, Zone: time.Local}}
}

// accept passes a message to the sink, unless the message is empty.
func (n *session) accept(ctx context.Context, msg []byte) (listen.Action, error) {
	if len(bytes.Trim(msg, "\r\n\x00 ")) == 0 {
		return listen.Accept, nil
	}
	action, ok := n.s.s.Action()
	if !ok {
		return action, listen.ErrEnded
	}
	if action == listen.Accept {
		if n.s.s.Sink().Put(ctx, n.p.Parse(msg, time.Now())) != nil {
			return action, listen.ErrEnded
		}
		n.uncommitted++
	}
	return action, nil
}

// commit waits until the sink has delivered or stored the accepted messages.
func (n *session) commit(ctx context.Context) error {
	if n.uncommitted == 0 {
		return nil
	}
	if n.s.s.Sink().Commit(ctx) != nil {
		return listen.ErrEnded
	}
	n.s.s.CountAccepted(n.uncommitted, n.uncommitted)
	n.uncommitted = 0
	return nil
}

// serve reads the messages of one connection until it ends. The listen.Server calls it on a
// separate goroutine for each connection.
func (s *Server) serve(ctx context.Context, c *listen.Conn) error {
	n := s.session()
	n.commits = s.s.Commits(c, maxUncommitted)
	r := s.s.Reader(c)
	defer r.Release()
	r.Begun = true // no time limit for the first data: a client that writes to a closed connection loses messages
	err := s.read(ctx, n, &r)
	if e := n.commits.End(ctx); e != nil {
		return e
	}
	return err
}

// maxUncommitted is the maximum number of messages of a connection that wait for a commit.
const maxUncommitted = 16 << 10

// read reads and accepts the messages of a connection. It also reads while a commit is in progress.
func (s *Server) read(ctx context.Context, n *session, r *listen.Reader) error {
	var f framer
	for {
		err := n.messages(ctx, r, &f)
		if e := n.beginCommit(ctx); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		if err = r.Read(s.s.Reading()); err == nil {
			continue
		}
		// The last line of a connection may lack its newline.
		if rest := r.Rest(); listen.IsCut(err) && len(rest) > 0 && !f.endsInMessage(rest) {
			if _, e := n.accept(ctx, r.Consume(len(rest))); e != nil {
				return e
			}
			return n.beginCommit(ctx)
		}
		return err
	}
}

// beginCommit starts a commit of the accepted messages and does not wait for its result.
func (n *session) beginCommit(ctx context.Context) error {
	uncommitted := n.uncommitted
	n.uncommitted = 0
	err := n.commits.Add(ctx, uncommitted, uncommitted, nil)
	n.commits.Begin(ctx)
	return err
}

// messages accepts all complete messages that were read.
func (n *session) messages(ctx context.Context, r *listen.Reader, f *framer) error {
	for {
		head, size := f.next(r.Rest())
		switch {
		case size < 0 && len(r.Rest()) > r.Limits.MessageBytes+maxCount || size > r.Limits.MessageBytes:
			return r.TooLong()
		case size < 0 || head+size > len(r.Rest()):
			return nil
		}
		msg := r.Consume(head + size)[head:]
		switch action, err := n.accept(ctx, msg); {
		case err != nil:
			return err
		case action == listen.Reset:
			r.Reset()
			return listen.ErrEnded
		}
	}
}

// maxCount is the maximum size of the length before a message, including the following space. A
// longer number is part of a line.
const maxCount = 10

// A framer finds the ends of messages in a stream (RFC 6587). A message either follows its length,
// or is a line that ends at LF or NUL. Each byte is examined at most twice.
type framer struct {
	seen int // number of examined bytes of the current line, none of which ends it
}

// next finds the first message in b. head is the number of bytes before the message, and size is
// the length of the message with the LF or NUL at its end. If more data is needed, size is -1.
func (f *framer) next(b []byte) (head, size int) {
	if f.seen == 0 {
		head, size, counted := octetCount(b)
		if counted == maybe {
			return 0, -1
		}
		if counted == yes {
			return head, size
		}
	}
	return f.line(b)
}

// An answer states whether a text begins with the length of a message.
type answer uint8

const (
	no answer = iota
	yes
	maybe // more data is needed to decide
)

// octetCount parses MSG-LEN SP of RFC 6587, section 3.4.1. A line may also begin with a number and
// a space, so counted is yes only if a priority <PRI> follows.
func octetCount(b []byte) (head, size int, counted answer) {
	digits := func(most int) (n int) {
		from := head
		for head < len(b) && head-from < most && b[head] >= '0' && b[head] <= '9' {
			n = 10*n + int(b[head]-'0')
			head++
		}
		return n
	}
	char := func(c byte) bool {
		if head < len(b) && b[head] == c {
			head++
			return true
		}
		return false
	}
	size = digits(maxCount - 1)
	if head > 0 && b[0] != '0' && char(' ') {
		start := head
		if char('<') {
			if digits(3); head > start+1 && char('>') && head-start <= size {
				return start, size, yes
			}
		}
	}
	if head == len(b) {
		return 0, 0, maybe
	}
	return 0, 0, no
}

// endsInMessage reports whether b begins with the length of a message. It is called with the last
// data of a connection, so that such a message is incomplete.
func (f *framer) endsInMessage(b []byte) bool {
	_, _, counted := octetCount(b)
	return f.seen == 0 && counted == yes
}

// line finds the end of the line at the beginning of b. If more data is needed, size is -1.
func (f *framer) line(b []byte) (head, size int) {
	for f.seen < len(b) {
		block := b[f.seen:min(len(b), f.seen+lookAhead)]
		end := bytes.IndexByte(block, '\n')
		if end >= 0 {
			block = block[:end]
		}
		if nul := bytes.IndexByte(block, 0); nul >= 0 {
			end = nul
		}
		if end >= 0 {
			size = f.seen + end + 1
			f.seen = 0
			return 0, size
		}
		f.seen += len(block)
	}
	return 0, -1
}

// lookAhead is the number of bytes in which the method line searches for LF and then for NUL. If
// messages end at NUL, the next LF may be far away.
const lookAhead = 1 << 10

// maxDatagram is the size of the buffer for a datagram. Kernels do not allow larger datagrams.
const maxDatagram = 256 << 10

// Up to maxShared datagrams share a commit. The first of them waits at most maxSharedTime for more.
const (
	maxShared     = 256
	maxSharedTime = time.Millisecond
)

// packets reads datagrams from c until the server is closed.
func (s *Server) packets(c net.PacketConn) {
	n := s.session()
	buf := make([]byte, maxDatagram)
	ctx := s.s.Context()
	for {
		if n.uncommitted == 0 {
			c.SetReadDeadline(time.Time{})
		}
		size, _, err := c.ReadFrom(buf)
		if size > 0 {
			if _, e := n.accept(ctx, buf[:size]); e != nil {
				return
			}
		}
		timedOut := errors.Is(err, os.ErrDeadlineExceeded)
		if err != nil || n.uncommitted >= maxShared {
			if n.commit(ctx) != nil {
				return
			}
		}
		switch {
		case err == nil:
			if n.uncommitted == 1 {
				c.SetReadDeadline(time.Now().Add(maxSharedTime))
			}
		case timedOut:
		case s.s.Reading().Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			s.s.Refuse("", fmt.Errorf("cannot read datagrams: %w", err))
			select {
			case <-time.After(time.Second):
			case <-s.s.Reading().Done():
			}
		}
	}
}

// Package syslog is a server for syslog: RFC 5424 and 3164 over TCP and unix sockets, with octet
// counting or messages that end at LF or NUL, and over datagrams. Syslog has no acknowledgements:
// messages lost at the end of a connection are not reported.
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

// Source is the Source of the records.
const Source = "syslog"

// Server is a server of syslog.
type Server struct{ s *listen.Server }

// New returns a server. The Name of c is set.
func New(c listen.Config) *Server {
	c.Name = Source
	s := &Server{}
	s.s = listen.NewServer(c, s.serve)
	return s
}

// Serve accepts the connections of l until Close, and returns at once.
func (s *Server) Serve(l net.Listener) { s.s.Serve(l) }

// ServePackets reads the datagrams of c until Close, and returns at once. While the sink does not
// accept records, the kernel drops datagrams for which it has no room.
func (s *Server) ServePackets(c net.PacketConn) {
	if s.s.Own(c) {
		s.s.Go(func() { s.packets(c) })
	}
}

// Stats returns the counts since the start.
func (s *Server) Stats() listen.Stats { return s.s.Stats() }

// Close ends the server. Messages that were read are taken, if ctx lasts.
func (s *Server) Close(ctx context.Context) error { return s.s.Close(ctx) }

// A session accepts the messages of one connection.
type session struct {
	s       *Server
	p       Parser
	taken   int             // since the last hand or commit
	commits *listen.Commits // of a connection
}

func (s *Server) session() *session {
	return &session{s: s, p: Parser{MaxLabels: s.s.Limits().Labels, Zone: time.Local}}
}

// take passes a message to the sink.
func (n *session) take(ctx context.Context, msg []byte) (listen.Action, error) {
	if len(bytes.Trim(msg, "\r\n\x00 ")) == 0 {
		return listen.Take, nil
	}
	action, ok := n.s.s.Action()
	if !ok {
		return action, listen.ErrEnded
	}
	if action == listen.Take {
		if n.s.s.Sink().Put(ctx, n.p.Parse(msg, time.Now())) != nil {
			return action, listen.ErrEnded
		}
		n.taken++
	}
	return action, nil
}

// commit commits the accepted messages.
func (n *session) commit(ctx context.Context) error {
	if n.taken == 0 {
		return nil
	}
	if n.s.s.Sink().Commit(ctx) != nil {
		return listen.ErrEnded
	}
	n.s.s.Taken(n.taken, n.taken)
	n.taken = 0
	return nil
}

func (s *Server) serve(ctx context.Context, c *listen.Conn) error {
	n := s.session()
	n.commits = s.s.Commits(c, maxTaken)
	r := s.s.Reader(c)
	defer r.Release()
	r.Begun = true // a silent peer may send at any time: data sent to a closed connection is lost
	err := s.read(ctx, n, &r)
	if e := n.commits.End(ctx); e != nil {
		return e
	}
	return err
}

// maxTaken is how many messages of a connection wait for a commit at most.
const maxTaken = 16 << 10

// read reads the messages of a connection. It continues to read during a commit.
func (s *Server) read(ctx context.Context, n *session, r *listen.Reader) error {
	var f framer
	for {
		err := n.messages(ctx, r, &f)
		if e := n.hand(ctx); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		if err = r.Read(s.s.Reading()); err == nil {
			continue
		}
		// The last line may have no end.
		if rest := r.Rest(); listen.Cut(err) && len(rest) > 0 && !f.cut(rest) {
			if _, e := n.take(ctx, r.Take(len(rest))); e != nil {
				return e
			}
			return n.hand(ctx)
		}
		return err
	}
}

// hand starts a commit of the accepted messages, which runs concurrently with the next ones.
func (n *session) hand(ctx context.Context) error {
	taken := n.taken
	n.taken = 0
	err := n.commits.Taken(ctx, taken, taken, nil)
	n.commits.Begin(ctx)
	return err
}

// messages accepts all complete messages in the buffer.
func (n *session) messages(ctx context.Context, r *listen.Reader, f *framer) error {
	for {
		head, size := f.next(r.Rest())
		switch {
		case size < 0 && len(r.Rest()) > r.Limits.MessageBytes+maxCount || size > r.Limits.MessageBytes:
			return r.TooLong()
		case size < 0 || head+size > len(r.Rest()):
			return nil
		}
		msg := r.Take(head + size)[head:]
		switch action, err := n.take(ctx, msg); {
		case err != nil:
			return err
		case action == listen.Reset:
			r.Reset()
			return listen.ErrEnded
		}
	}
}

// maxCount is how long the count of octets and its space may be. More digits are a line.
const maxCount = 10

// A framer finds where messages end (RFC 6587): a message with its length before it, or a
// line, which ends at LF or NUL. It looks at each byte once or twice.
type framer struct {
	seen int // bytes of the line, without its end
}

// next returns the number of bytes before the first message in b, and its length; -1: it
// is not known yet. The end of a line is part of it. A second end after it, as in "\x00\n",
// is an empty line.
func (f *framer) next(b []byte) (head, size int) {
	if f.seen == 0 {
		head, size, is := counted(b)
		if is == maybe {
			return 0, -1
		}
		if is == yes {
			return head, size
		}
	}
	return f.line(b)
}

// An answer is a result of counted.
type answer uint8

const (
	no answer = iota
	yes
	maybe // there are too few bytes
)

// counted reads MSG-LEN SP of RFC 6587, section 3.4.1, and reports whether a SYSLOG-MSG
// follows, which begins with <PRI>. A line may begin with a number and a space, too.
func counted(b []byte) (head, size int, is answer) {
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

// cut reports whether b, the last that came, is part of a message with its length before it.
func (f *framer) cut(b []byte) bool {
	_, _, is := counted(b)
	return f.seen == 0 && is == yes
}

func (f *framer) line(b []byte) (head, size int) {
	for f.seen < len(b) {
		part := b[f.seen:min(len(b), f.seen+lookAhead)]
		end := bytes.IndexByte(part, '\n')
		if end >= 0 {
			part = part[:end]
		}
		if nul := bytes.IndexByte(part, 0); nul >= 0 {
			end = nul
		}
		if end >= 0 {
			size = f.seen + end + 1
			f.seen = 0
			return 0, size
		}
		f.seen += len(part)
	}
	return 0, -1
}

// lookAhead is how far the end of a line is looked for at a time. Where messages end at
// NUL, the next LF may be far.
const lookAhead = 1 << 10

// maxDatagram is the longest datagram: kernels have less.
const maxDatagram = 256 << 10

// shared is how many datagrams share a commit, and sharedTime how long the first waits for
// others.
const (
	shared     = 256
	sharedTime = time.Millisecond
)

func (s *Server) packets(c net.PacketConn) {
	n := s.session()
	buf := make([]byte, maxDatagram)
	ctx := s.s.Context()
	for {
		if n.taken == 0 {
			c.SetReadDeadline(time.Time{})
		}
		size, _, err := c.ReadFrom(buf)
		if size > 0 {
			if _, e := n.take(ctx, buf[:size]); e != nil {
				return
			}
		}
		late := errors.Is(err, os.ErrDeadlineExceeded)
		if err != nil || n.taken >= shared {
			if n.commit(ctx) != nil {
				return
			}
		}
		switch {
		case err == nil:
			if n.taken == 1 {
				c.SetReadDeadline(time.Now().Add(sharedTime))
			}
		case late:
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

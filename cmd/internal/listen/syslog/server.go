// Package syslog is a server of syslog (RFC 5424 and RFC 3164) over TCP, Unix sockets and
// datagrams. In a
// stream, messages have a length (octet counting) or end at LF or NUL. Syslog has no
// acknowledgements, so
// a message that is lost at the end of a connection is not reported.
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

// Source is the value of listen.Record.Source.
const Source = "syslog"

// Server is a server of syslog.
type Server struct{ s *listen.Server }

// New returns a server. It sets the Name of c.
func New(c listen.Config) *Server {
	c.Name = Source
	s := &Server{}
	s.s = listen.NewServer(c, s.serve)
	return s
}

// Serve starts accepting connections of l and returns at once. Close ends it.
func (s *Server) Serve(l net.Listener) { s.s.Serve(l) }

// ServePackets starts reading datagrams of c and returns at once. Close ends it. While the sink
// accepts no records, the kernel drops the datagrams for which it has no room.
func (s *Server) ServePackets(c net.PacketConn) {
	if s.s.CloseLater(c) {
		s.s.Go(func() { s.packets(c) })
	}
}

// Stats returns the counts since the start.
func (s *Server) Stats() listen.Stats { return s.s.Stats() }

// Close ends the server. Messages that were read are accepted until ctx is done.
func (s *Server) Close(ctx context.Context) error { return s.s.Close(ctx) }

// A session accepts the messages of one connection or datagram socket.
type session struct {
	s           *Server
	p           Parser
	uncommitted int             // number of messages since the last commit
	commits     *listen.Commits // nil for datagrams
}

func (s *Server) session() *session {
	return &session{s: s, p: Parser{MaxLabels: s.s.Limits().Labels, Zone: time.Local}}
}

// accept passes a message to the sink.
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

// commit waits until the accepted messages are committed.
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

func (s *Server) serve(ctx context.Context, c *listen.Conn) error {
	n := s.session()
	n.commits = s.s.Commits(c, maxUncommitted)
	r := s.s.Reader(c)
	defer r.Release()
	r.Begun = true // no deadline: data sent to a connection that was closed for silence would be lost
	err := s.read(ctx, n, &r)
	if e := n.commits.End(ctx); e != nil {
		return e
	}
	return err
}

// maxUncommitted is the maximum number of messages of a connection that wait for a commit.
const maxUncommitted = 16 << 10

// read reads the messages of a connection, also while a commit is in progress.
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
		// The last line may lack its end.
		if rest := r.Rest(); listen.IsCut(err) && len(rest) > 0 && !f.cut(rest) {
			if _, e := n.accept(ctx, r.Consume(len(rest))); e != nil {
				return e
			}
			return n.beginCommit(ctx)
		}
		return err
	}
}

// beginCommit starts a commit of the accepted messages and does not wait for it.
func (n *session) beginCommit(ctx context.Context) error {
	uncommitted := n.uncommitted
	n.uncommitted = 0
	err := n.commits.Add(ctx, uncommitted, uncommitted, nil)
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

// maxCount is the maximum length of a message length with its space. A longer number begins a line.
const maxCount = 10

// A framer finds the ends of messages (RFC 6587): a message follows its length, or is a line that
// ends at LF or NUL. It examines each byte at most twice.
type framer struct {
	seen int // bytes of the current line that contain no end
}

// next returns the number of bytes before the first message in b and the size of the message with
// its end, or a size of -1 if more data is needed. A second end of a line, as in "\x00\n", is an
// empty line.
func (f *framer) next(b []byte) (head, size int) {
	if f.seen == 0 {
		head, size, is := octetCount(b)
		if is == maybe {
			return 0, -1
		}
		if is == yes {
			return head, size
		}
	}
	return f.line(b)
}

// An answer tells whether a text begins with the length of a message.
type answer uint8

const (
	no answer = iota
	yes
	maybe // more data is needed
)

// octetCount reads MSG-LEN SP of RFC 6587, section 3.4.1. A line may also begin with a number and a
// space, so is reports whether a message with its <PRI> follows.
func octetCount(b []byte) (head, size int, is answer) {
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

// cut reports whether b, the last data of a connection, is the beginning of a message with a
// length.
func (f *framer) cut(b []byte) bool {
	_, _, is := octetCount(b)
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

// lookAhead is the number of bytes in which the end of a line is searched at a time. If messages
// end at NUL, the next LF may be far away.
const lookAhead = 1 << 10

// maxDatagram is the size of the buffer for a datagram. Kernels allow less.
const maxDatagram = 256 << 10

// maxShared is the maximum number of datagrams that share a commit. maxSharedTime is the maximum
// time that the first of them waits for others.
const (
	maxShared     = 256
	maxSharedTime = time.Millisecond
)

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
		late := errors.Is(err, os.ErrDeadlineExceeded)
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

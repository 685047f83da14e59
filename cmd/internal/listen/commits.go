package listen

import (
	"context"
	"sync"
)

// Commits commits the accepted messages of a connection and acknowledges them. Meanwhile the
// connection accepts more messages, which share the next commit. One goroutine calls its methods.
type Commits struct {
	s    *Server
	c    *Conn
	most int           // maximum number of messages that wait for a commit
	room chan struct{} // receives a value when fewer messages wait

	mu      sync.Mutex    // guards the fields below; no other lock is acquired while it is held
	wait    batch         // messages that the next commit covers
	spare   []byte        // unused memory for batch.acks
	running chan struct{} // closed when the commits in progress have ended; nil if there are none
	failed  error         // error of a commit; there are no commits after it
}

// A batch contains the messages that one commit covers.
type batch struct {
	acks              []byte // acknowledgements for the peer
	messages, records int
}

// Commits returns the Commits of a new connection. At most most of its messages wait for a commit.
func (s *Server) Commits(c *Conn, most int) *Commits {
	return &Commits{s: s, c: c, most: most, room: make(chan struct{}, 1)}
}

// Add adds messages whose records the sink has accepted. ack, if not nil, appends their
// acknowledgement. Add waits while too many messages wait for a commit. It returns the error of a
// failed commit.
func (n *Commits) Add(ctx context.Context, messages, records int, ack func(dst []byte) []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ack != nil {
		n.wait.acks = ack(n.wait.acks)
	}
	n.wait.messages += messages
	n.wait.records += records
	for n.failed == nil && n.wait.messages >= n.most {
		n.beginLocked(ctx)
		n.mu.Unlock()
		<-n.room
		n.mu.Lock()
	}
	return n.failed
}

// Begin starts a commit of the accepted messages, now or after the commit in progress. If the
// commit fails, the connection is closed.
func (n *Commits) Begin(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.beginLocked(ctx)
}

func (n *Commits) beginLocked(ctx context.Context) {
	if n.running != nil || n.wait.messages == 0 || n.failed != nil {
		return
	}
	ended := make(chan struct{})
	n.running = ended
	go func() {
		defer close(ended)
		for n.step(ctx) {
		}
	}()
}

// step runs one commit and reports whether more messages wait.
func (n *Commits) step(ctx context.Context) bool {
	n.mu.Lock()
	b := n.wait
	if b.messages == 0 || n.failed != nil {
		n.running = nil
		n.mu.Unlock()
		return false
	}
	n.wait = batch{acks: n.spare[:0]}
	n.spare = nil
	n.mu.Unlock()
	n.signal()
	err := n.commit(ctx, &b)
	n.mu.Lock()
	if cap(b.acks) <= ReadBytes {
		n.spare = b.acks
	}
	n.failed = err
	n.mu.Unlock()
	if err != nil {
		n.c.Close() // ends a blocked read
		n.signal()
	}
	return true
}

func (n *Commits) signal() {
	select {
	case n.room <- struct{}{}:
	default:
	}
}

func (n *Commits) commit(ctx context.Context, b *batch) error {
	if n.s.c.Sink.Commit(ctx) != nil {
		return ErrEnded
	}
	n.s.CountAccepted(b.messages, b.records)
	if len(b.acks) == 0 {
		return nil
	}
	return n.c.Answer(b.acks)
}

// End commits the accepted messages and waits for it. It returns the error of a commit that has
// closed the connection.
func (n *Commits) End(ctx context.Context) error {
	for {
		n.Begin(ctx)
		n.mu.Lock()
		running, err := n.running, n.failed
		n.mu.Unlock()
		if running == nil {
			return err
		}
		<-running
	}
}

package listen

import (
	"context"
	"sync"
)

// Commits commits the accepted messages of a connection and acknowledges them, while the connection
// accepts more: messages that arrive during a commit share the next one. Its methods are called by
// one goroutine.
type Commits struct {
	s    *Server
	c    *Conn
	most int           // messages that may wait for a commit
	room chan struct{} // holds one: fewer wait

	mu      sync.Mutex // a leaf; guards the rest
	wait    batch
	spare   []byte        // memory of acks
	running chan struct{} // closed when the commits under way have ended; nil: there are none
	failed  error         // there are no others after it
}

// A batch is what one commit covers.
type batch struct {
	acks              []byte // acknowledgements for the peer
	messages, records int
}

// Commits returns the Commits of a connection without accepted messages. At most most of its
// messages wait for a commit.
func (s *Server) Commits(c *Conn, most int) *Commits {
	return &Commits{s: s, c: c, most: most, room: make(chan struct{}, 1)}
}

// Taken adds messages whose records the sink has accepted. ack, if not nil, appends their
// acknowledgement. Taken waits while too many messages wait for a commit. It returns an error if a
// commit has failed.
func (n *Commits) Taken(ctx context.Context, messages, records int, ack func(dst []byte) []byte) error {
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

// Begin starts a commit of the accepted messages, now or after the current commit. If it fails, the
// connection is closed.
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

// step makes one commit. It reports whether there is more to do.
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
	n.s.Taken(b.messages, b.records)
	if len(b.acks) == 0 {
		return nil
	}
	return n.c.Answer(b.acks)
}

// End commits the accepted messages and waits. It returns the error of a commit that has ended the
// connection.
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

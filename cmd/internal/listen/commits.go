package listen

import (
	"context"
	"sync"
)

// Commits commits the accepted messages of a connection and sends their acknowledgements. While a
// commit is in progress, the connection accepts more messages; the next commit covers all of them.
// Only one goroutine calls its methods.
type Commits struct {
	s          *Server
	c          *Conn
	maxWaiting int           // maximum number of messages that wait for a commit
	hasRoom    chan struct{} // receives a value when a commit has taken the waiting messages or has failed

	mu      sync.Mutex    // guards the fields below; a goroutine that holds mu acquires no other lock
	waiting batch         // messages that the next commit covers
	spare   []byte        // unused memory for batch.acks
	running chan struct{} // closed when the goroutine that runs the commits ends; nil if it is not running
	failed  error         // error of the first failed commit; no further commits are started
}

// A batch describes the messages that one commit covers.
type batch struct {
	acks              []byte // acknowledgements for the peer
	messages, records int
}

// Commits returns a Commits for the connection c, on which at most maxWaiting messages wait for a
// commit.
func (s *Server) Commits(c *Conn, maxWaiting int) *Commits {
	return &Commits{s: s, c: c, maxWaiting: maxWaiting, hasRoom: make(chan struct{}, 1)}
}

// Add adds messages whose records the sink has accepted. ack appends their acknowledgement; it is
// nil if they need none. If too many messages wait for a commit, Add blocks until a commit takes
// them. After a failed commit, Add returns its error.
func (n *Commits) Add(ctx context.Context, messages, records int, ack func(dst []byte) []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ack != nil {
		n.waiting.acks = ack(n.waiting.acks)
	}
	n.waiting.messages += messages
	n.waiting.records += records
	for n.failed == nil && n.waiting.messages >= n.maxWaiting {
		n.beginLocked(ctx)
		n.mu.Unlock()
		<-n.hasRoom
		n.mu.Lock()
	}
	return n.failed
}

// Begin starts a commit of the accepted messages. If a commit is in progress, the next one starts
// when it has ended. If a commit fails, the connection is closed.
func (n *Commits) Begin(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.beginLocked(ctx)
}

// beginLocked starts the goroutine of the commits, unless it is running or has nothing to do. The caller
// holds mu.
func (n *Commits) beginLocked(ctx context.Context) {
	if n.running != nil || n.waiting.messages == 0 || n.failed != nil {
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

// step runs one commit. It returns false if no message waits or a commit has failed.
func (n *Commits) step(ctx context.Context) bool {
	n.mu.Lock()
	b := n.waiting
	if b.messages == 0 || n.failed != nil {
		n.running = nil
		n.mu.Unlock()
		return false
	}
	n.waiting = batch{acks: n.spare[:0]}
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
		n.c.Close() // a blocked read returns
		n.signal()
	}
	return true
}

// signal makes a blocked Add check again whether too many messages wait.
func (n *Commits) signal() {
	select {
	case n.hasRoom <- struct{}{}:
	default:
	}
}

// commit commits the messages of b and sends their acknowledgements.
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

// End commits the accepted messages and waits until no commit is in progress. It returns the error
// of a failed commit.
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

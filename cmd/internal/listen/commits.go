package listen

import (
	"context"
	"sync"
)

// Commits commits the accepted messages of a connection: it waits until the sink has delivered or
// stored them, and then sends their acknowledgements. While a commit is in progress, the connection
// accepts more messages, which the next commit covers. Only one goroutine may call the methods.
type Commits struct {
	s          *Server
	c          *Conn
	maxWaiting int           // maximum number of messages that wait for a commit
	hasRoom    chan struct{} // receives a value when a commit takes the waiting messages or fails

	mu      sync.Mutex    // guards the fields below; a goroutine that holds mu acquires no other lock
	waiting batch         // messages for the next commit
	spare   []byte        // unused memory for the field acks of the next batch
	running chan struct{} // closed when the goroutine that runs the commits ends; nil if there is none
	failed  error         // error of the first failed commit; no commit is started after it
}

// A batch contains the messages that one commit covers.
type batch struct {
	acks              []byte // acknowledgements to send
	messages, records int
}

// Commits returns the object that commits the messages of the connection c. At most maxWaiting
// messages may wait for a commit.
func (s *Server) Commits(c *Conn, maxWaiting int) *Commits {
	return &Commits{s: s, c: c, maxWaiting: maxWaiting, hasRoom: make(chan struct{}, 1)}
}

// Add adds messages that the sink has accepted. The function ack appends their acknowledgement; nil
// means that none is sent. If too many messages wait for a commit, Add blocks until a commit takes
// them. If a commit has failed, Add returns its error.
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

// Begin starts a commit of the added messages. If a commit is in progress, the next commit starts
// after it. If a commit fails, the connection is closed.
func (n *Commits) Begin(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.beginLocked(ctx)
}

// beginLocked starts a goroutine that runs commits, unless the goroutine is already running or no
// messages wait. The caller holds mu.
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

// step runs one commit. It returns false if no messages wait or a commit has failed.
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
		n.c.Close() // ends a blocked read
		n.signal()
	}
	return true
}

// signal wakes a blocked Add, which checks its condition again.
func (n *Commits) signal() {
	select {
	case n.hasRoom <- struct{}{}:
	default:
	}
}

// commit waits until the sink has delivered or stored the messages of b, and sends their
// acknowledgements.
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

// End commits all added messages and waits until no commit is in progress. If a commit has failed,
// it returns the error of the commit.
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

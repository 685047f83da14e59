package tail

import (
	"context"
	"sync"
	"time"
)

const (
	commitBytes = 1 << 20 // number of bytes passed to the sink after which a commit starts even if it is not due
	maxCommits  = 8       // maximum number of commits in progress
)

// A snapshot contains the positions that one commit covers.
type snapshot struct {
	no    uint64
	bytes int64 // bytes passed to the sink since the last snapshot
	items []item
}

// An item is the position of one generation in a snapshot.
type item struct {
	g *generation
	resumePoint
}

// commits takes snapshots of the positions and calls Sink.Commit for each snapshot. After a
// successful Commit it marks the positions in the snapshot as committed.
type commits struct {
	o       *Options
	index   *index
	keeper  *keeper
	sink    Sink
	running sync.WaitGroup

	// Only the goroutine of Run uses the fields from touched to next.
	touched []*series // series to include in the next commit
	bytes   int64     // bytes passed to the sink since the last commit
	number  uint64    // number of the last snapshot
	next    time.Time // time of the next commit

	mu     sync.Mutex
	count  int       // number of commits in progress
	failed []*series // series of failed commits, to include in the next commit
}

// touch makes the next commit include the positions of s.
func (c *commits) touch(s *series) {
	if !s.touched {
		s.touched = true
		c.touched = append(c.touched, s)
	}
}

// add counts n bytes passed to the sink, and reports whether a commit is due.
func (c *commits) add(n int64) bool {
	c.bytes += n
	return c.bytes >= commitBytes
}

// begin is called before a commit. ok reports whether the commit may start: fewer than maxCommits
// must be in progress. failed contains the series of the commits that have failed since the last
// call.
func (c *commits) begin() (failed []*series, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failed, c.failed = c.failed, nil
	return failed, c.count < maxCommits
}

// commit starts a commit if one is due. It returns the time at which it must be called again at the
// latest.
func (c *commits) commit(ctx context.Context, now time.Time) time.Time {
	never := now.Add(time.Hour)
	if !c.index.stored() {
		return never
	}
	failed, ok := c.begin()
	for _, s := range failed {
		c.touch(s)
	}
	if len(c.touched) == 0 || !ok {
		return never
	}
	if c.bytes < commitBytes && now.Before(c.next) {
		return c.next
	}
	c.number++
	shot := snapshot{no: c.number, bytes: c.bytes, items: c.index.snapshot(c.touched)}
	for _, s := range c.touched {
		s.touched = false
	}
	c.touched, c.bytes, c.next = c.touched[:0], 0, now.Add(c.o.CommitEvery)
	if len(shot.items) == 0 {
		return never
	}
	c.mu.Lock()
	c.count++
	c.mu.Unlock()
	c.running.Go(func() { c.settle(shot, c.sink.Commit(ctx)) })
	return never
}

// settle is called when the commit of the snapshot shot has ended. err is the result of
// Sink.Commit.
func (c *commits) settle(shot snapshot, err error) {
	failed := c.index.settle(shot, err == nil)
	if err == nil {
		c.keeper.committed(shot.bytes)
	}
	c.mu.Lock()
	c.count--
	c.failed = append(c.failed, failed...)
	c.mu.Unlock()
	signal(c.index.queue.ready) // the goroutine of Run may now start another commit, or repeat a failed one
}

package listen

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Limits are limits on the resources that clients can use. The default of each field applies if the
// field is 0.
type Limits struct {
	Conns        int           // simultaneous connections; default 256
	MessageBytes int           // size of one message, both compressed and decompressed; default 32 MiB
	MemoryBytes  int64         // total size of the messages being read; default 8 times MessageBytes
	Labels       int           // labels of a stream, and metadata of a record; default 128
	MessageTime  time.Duration // time to receive the rest of a message; default 1 min
	HelloTime    time.Duration // time for a handshake; the first byte may take 6 times as long; default 10 s
	WriteTime    time.Duration // time to write an answer; default 10 s
}

// setDefaults sets each field that is 0 to its default.
func (l *Limits) setDefaults() {
	setDefault := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	setDefault(&l.Conns, 256)
	setDefault(&l.MessageBytes, 32<<20)
	setDefault(&l.Labels, 128)
	if l.MemoryBytes == 0 {
		l.MemoryBytes = 8 * int64(l.MessageBytes)
	}
	for v, d := range map[*time.Duration]time.Duration{&l.MessageTime: time.Minute, &l.HelloTime: 10 * time.Second, &l.WriteTime: 10 * time.Second} {
		if *v == 0 {
			*v = d
		}
	}
}

// errNoMemory reports that other connections use the whole budget.
var errNoMemory = errors.New("no memory for the message: other connections use all of it")

// freeBytes is the amount of memory of each lease that does not count toward the budget.
const freeBytes = 64 << 10

// A budget is an amount of memory that all connections of a server share.
type budget struct {
	total int64

	mu    sync.Mutex // acquire no other lock while holding mu
	used  int64
	freed chan struct{} // closed when memory is released; nil if no call waits
}

// A Lease is the part of a budget that one connection uses. It is not safe for concurrent use.
type Lease struct {
	b    *budget
	size int64
}

// Hold changes the size of the lease to n bytes. If the budget is exhausted, Hold waits until other
// leases release memory. It returns an error if ctx is done, or if n exceeds the whole budget.
func (l *Lease) Hold(ctx context.Context, n int) error {
	want := max(int64(n)-freeBytes, 0)
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if want <= l.size || b.used+want-l.size <= b.total {
			if want < l.size && b.freed != nil {
				close(b.freed)
				b.freed = nil
			}
			b.used += want - l.size
			l.size = want
			return nil
		}
		if want > b.total {
			return errNoMemory
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		b.mu.Lock()
		if ctx.Err() != nil {
			return errNoMemory
		}
	}
}

// Release returns all memory to the budget.
func (l *Lease) Release() { l.Hold(context.Background(), 0) }

package listen

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Limits bound what peers may cost. A field that is 0 has its default.
type Limits struct {
	Conns        int           // connections at a time; 256
	MessageBytes int           // one message, as it comes and decompressed; 32 MiB
	MemoryBytes  int64         // all messages that are being read; 8 messages
	Labels       int           // labels of a stream, metadata of a record; 128
	MessageTime  time.Duration // from when a message is waited for and has begun to its end; 1 min
	HelloTime    time.Duration // handshakes; from the connection to the first byte: 6 times as long; 10 s
	WriteTime    time.Duration // one answer; 10 s
}

func (l *Limits) setDefaults() {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Conns, 256)
	def(&l.MessageBytes, 32<<20)
	def(&l.Labels, 128)
	if l.MemoryBytes == 0 {
		l.MemoryBytes = 8 * int64(l.MessageBytes)
	}
	for v, d := range map[*time.Duration]time.Duration{&l.MessageTime: time.Minute, &l.HelloTime: 10 * time.Second, &l.WriteTime: 10 * time.Second} {
		if *v == 0 {
			*v = d
		}
	}
}

// errNoMemory reports that MemoryBytes is used up.
var errNoMemory = errors.New("no memory for the message: other connections use all of it")

// freeBytes is what each lease has without asking.
const freeBytes = 64 << 10

// A budget is memory that connections share.
type budget struct {
	total int64

	mu    sync.Mutex // a leaf
	used  int64
	freed chan struct{} // closed when memory is released; nil: no goroutine waits
}

// A Lease is what one connection has of the budget. It is used by one goroutine.
type Lease struct {
	b    *budget
	held int64
}

// Hold sets the size of the lease to n bytes. It waits while there is no room. It returns an error
// if ctx ends first, or if n exceeds the limit.
func (l *Lease) Hold(ctx context.Context, n int) error {
	want := max(int64(n)-freeBytes, 0)
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if want <= l.held || b.used+want-l.held <= b.total {
			if want < l.held && b.freed != nil {
				close(b.freed)
				b.freed = nil
			}
			b.used += want - l.held
			l.held = want
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

// Release gives all back.
func (l *Lease) Release() { l.Hold(context.Background(), 0) }

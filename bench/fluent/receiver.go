package fluent

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/msgpack"
)

// A Receiver accepts connections on loopback, decodes messages, counts events and acknowledges
// chunks.
type Receiver struct {
	Addr    string
	Events  atomic.Uint64
	Bytes   atomic.Uint64
	discard bool
	delay   time.Duration // network latency of each direction
	l       net.Listener
	mu      sync.Mutex
	conns   []net.Conn
	wg      sync.WaitGroup

	buf []byte // buffer of the first connection; its memory pages are already mapped
}

// NewReceiver starts a receiver. If discard is true, it discards everything it reads. If discard is
// false, it sends each acknowledgement after twice the delay, to simulate a network with that
// latency.
func NewReceiver(discard bool, delay time.Duration) (*Receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Receiver{Addr: l.Addr().String(), discard: discard, delay: delay, l: l, buf: make([]byte, 1<<20)}
	for i := range r.buf {
		r.buf[i] = 1 // makes the kernel map the memory page
	}
	r.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns = append(r.conns, c)
			r.mu.Unlock()
			r.wg.Go(func() { r.serve(c) })
		}
	})
	return r, nil
}

// Close stops the receiver and closes its connections.
func (r *Receiver) Close() error {
	r.l.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
	return nil
}

func (r *Receiver) serve(c net.Conn) {
	defer c.Close()
	if r.discard {
		io.Copy(io.Discard, struct{ io.Reader }{c})
		return
	}
	r.mu.Lock()
	buf, from := r.buf[:0], 0
	r.buf = nil // the next connection allocates its own buffer
	r.mu.Unlock()
	acks := make(chan ack, 1<<12)
	defer close(acks)
	r.wg.Go(func() {
		for a := range acks {
			time.Sleep(time.Until(a.at))
			if _, err := c.Write(a.msg); err != nil {
				c.Close()
			}
		}
	})
	for {
		if cap(buf)-len(buf) < 64<<10 {
			if from == 0 {
				buf = append(buf, make([]byte, len(buf)+64<<10)...)[:len(buf)]
			} else {
				n := copy(buf, buf[from:])
				buf, from = buf[:n], 0
			}
		}
		n, err := c.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for from < len(buf) {
			rest, err := msgpack.Skip(buf[from:])
			if err != nil {
				break
			}
			msg := buf[from : len(buf)-len(rest)]
			events, id := count(msg)
			r.Events.Add(events)
			r.Bytes.Add(uint64(len(msg)))
			if len(id) > 0 {
				m := msgpack.AppendStr(msgpack.AppendMapHeader(nil, 1), "ack")
				acks <- ack{append(m, id...), time.Now().Add(2 * r.delay)}
			}
			from = len(buf) - len(rest)
		}
		if from == len(buf) {
			buf, from = buf[:0], 0
		}
		if err != nil {
			return
		}
	}
}

type ack struct {
	msg []byte
	at  time.Time
}

// count decodes a message of the modes PackedForward, which Go clients send, and Forward, which Fluent
// Bit sends. It returns the number of its events, and its chunk id in MessagePack form. An invalid
// message has no events.
func count(msg []byte) (n uint64, chunk []byte) {
	_, b, _ := msgpack.Next(msg) // the array
	_, b, _ = msgpack.Next(b)    // the tag
	events, after, _ := msgpack.Next(b)
	if events.Kind == msgpack.Array {
		n = uint64(events.Len)
		after, _ = msgpack.Skip(b)
	}
	for p := events.Bytes; len(p) > 0; n++ {
		rest, err := msgpack.Skip(p)
		if err != nil {
			return 0, nil
		}
		p = rest
	}
	option, b, _ := msgpack.Next(after)
	for range option.Len {
		k, v, _ := msgpack.Next(b)
		rest, err := msgpack.Skip(v)
		if err != nil {
			return 0, nil
		}
		if string(k.Bytes) == "chunk" {
			chunk = v[:len(v)-len(rest)]
		}
		b = rest
	}
	return n, chunk
}

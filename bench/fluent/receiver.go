package fluent

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A Receiver accepts connections on loopback, decodes messages, counts events and acknowledges
// chunks.
type Receiver struct {
	Addr   string
	Events atomic.Uint64
	Bytes  atomic.Uint64
	server testkit.Forward
}

// NewReceiver starts a receiver. If discard is true, it discards everything it reads. If discard is
// false, it sends each acknowledgement after twice the delay, to simulate a network with that
// latency.
func NewReceiver(discard bool, delay time.Duration) (*Receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Receiver{Addr: l.Addr().String()}
	first := bytes.Repeat([]byte{1}, 1<<20) // the kernel maps the pages of memory that is written
	r.server.Script = func(n int, c *testkit.ForwardConn) {
		switch {
		case discard:
			io.Copy(io.Discard, struct{ io.Reader }{c})
		case n == 0:
			r.serve(c, first[:0], delay)
		default:
			r.serve(c, nil, delay)
		}
	}
	r.server.Serve(l)
	return r, nil
}

// Close stops the receiver and closes its connections.
func (r *Receiver) Close() error {
	r.server.Close()
	return nil
}

// serve reads messages into buf until the connection ends.
func (r *Receiver) serve(c net.Conn, buf []byte, delay time.Duration) {
	acks := make(chan ack, 1<<12)
	defer close(acks)
	go func() {
		for a := range acks {
			time.Sleep(time.Until(a.at))
			if _, err := c.Write(a.msg); err != nil {
				c.Close()
			}
		}
	}()
	for from := 0; ; {
		if cap(buf)-len(buf) < 64<<10 {
			buf = slices.Grow(buf[:copy(buf, buf[from:])], 64<<10)
			from = 0
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
				acks <- ack{append(m, id...), time.Now().Add(2 * delay)}
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

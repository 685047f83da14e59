package bufpool

import (
	"bytes"
	"unsafe"
)

// In debug mode no memory is handed out twice. What a pool without debug mode
// would hand out again, or leave to the garbage collector, goes into quarantine:
// it stays poisoned, and is looked at again when it leaves, when Faults is called,
// and when it is collected. Its node stays registered until then, so that whoever
// still has the slice and Puts it is found out, however late.

// What the quarantine of a class holds: buffers, and bytes unless it is only one
// buffer.
const (
	maxHeld      = 1 << 10
	maxHeldBytes = 4 << 20
)

// holdLocked puts f, which is free but in no list, into quarantine. What has been
// there for longest may have to leave. It holds the lock of the only list of c.
func (p *Pool) holdLocked(c *class, f item) {
	c.held = append(c.held, f)
	if len(c.held) <= min(max(maxHeldBytes/c.size, 1), maxHeld) {
		return
	}
	old := c.held[0]
	c.held[0] = item{}
	c.held = c.held[1:]
	p.inspectLocked(c, old.mem, old.node)
}

// inspectLocked reports it if somebody wrote into the buffer of n, which is free.
// The lock is that of n's home.
func (p *Pool) inspectLocked(c *class, mem *byte, n *node) {
	if n.trace.damaged {
		return
	}
	at := intact(unsafe.Slice(mem, c.size))
	if at < 0 {
		return
	}
	n.trace.damaged = true
	p.debug.fault(Fault{Kind: writeAfterPut, Class: c.size, Offset: at, Got: n.trace.got, Put: n.trace.put})
}

// poison fills free buffers. Not zero, which is what a caller expects of a new
// buffer and so might well write.
const poison = 0xDB

var poisoned = bytes.Repeat([]byte{poison}, 4<<10)

func fillPoison(buf []byte) {
	for len(buf) > 0 {
		buf = buf[copy(buf, poisoned):]
	}
}

// intact returns the offset of the first byte of buf that is not poison, or -1.
func intact(buf []byte) int {
	for from := 0; from < len(buf); from += len(poisoned) {
		part := buf[from:min(from+len(poisoned), len(buf))]
		if bytes.Equal(part, poisoned[:len(part)]) {
			continue
		}
		for i, b := range part {
			if b != poison {
				return from + i
			}
		}
	}
	return -1
}

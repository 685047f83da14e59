package bufpool

import (
	"bytes"
	"unsafe"
)

// In debug mode memory is used only once. A free buffer that would be reused, or left to the garbage
// collector, is quarantined instead. There it remains poisoned, and is inspected when it leaves, when
// Faults is called, and when it is collected. Its node stays registered until then, so that a second
// Put of the slice is detected, however late.

// Limits of the quarantine of a class: in buffers and, unless it is a single buffer, in bytes.
const (
	maxHeld      = 1 << 10
	maxHeldBytes = 4 << 20
)

// holdLocked moves f, which is free but in no list, to the quarantine. If the quarantine is full, its
// oldest buffer is inspected and leaves it. The caller holds the lock of the only list of c.
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

// inspectLocked reports a write into the free buffer of n, once for each buffer. The caller holds the lock
// of n.home.
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

// poison is the byte that fills free buffers in debug mode. It is not zero, because callers often write
// zeros.
const poison = 0xDB

// poisoned is a block of poison, for filling and comparing buffers.
var poisoned = bytes.Repeat([]byte{poison}, 4<<10)

// fillPoison fills buf with poison.
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

package bufpool

import (
	"bytes"
	"unsafe"
)

// In debug mode, memory is used only once. Instead of reusing or dropping a free buffer, the pool
// quarantines it, filled with poison. The buffer is inspected when it leaves the quarantine, when
// Faults is called, and when the garbage collector frees it. Its address stays registered until the
// garbage collector frees it, so that any later second Put is detected.

// Limits of the quarantine of one class, in buffers and in bytes. One buffer always fits.
const (
	maxQuarantined      = 1 << 10
	maxQuarantinedBytes = 4 << 20
)

// quarantineLocked moves f, a free buffer that is in no list, to the quarantine. If the quarantine
// is full, quarantineLocked inspects and removes its oldest buffer. The caller holds the lock of
// the only list of c.
func (p *Pool) quarantineLocked(c *class, f item) {
	c.quarantine = append(c.quarantine, f)
	if len(c.quarantine) <= min(max(maxQuarantinedBytes/c.size, 1), maxQuarantined) {
		return
	}
	old := c.quarantine[0]
	c.quarantine[0] = item{}
	c.quarantine = c.quarantine[1:]
	p.inspectLocked(c, old.mem, old.node)
}

// inspectLocked reports a fault, once for each buffer, if the free buffer of n was written to. The
// caller holds the lock of n.home.
func (p *Pool) inspectLocked(c *class, mem *byte, n *node) {
	if n.trace.damaged {
		return
	}
	at := changedByte(unsafe.Slice(mem, c.size))
	if at < 0 {
		return
	}
	n.trace.damaged = true
	p.debug.fault(Fault{Kind: writeAfterPut, Class: c.size, Offset: at, Got: n.trace.got, Put: n.trace.put})
}

// poison is the byte that fills free buffers in debug mode. It is not zero, because callers often
// write zeros.
const poison = 0xDB

// poisoned is a block of poison, for filling and comparing buffers.
var poisoned = bytes.Repeat([]byte{poison}, 4<<10)

// fillPoison fills buf with poison.
func fillPoison(buf []byte) {
	for len(buf) > 0 {
		buf = buf[copy(buf, poisoned):]
	}
}

// changedByte returns the offset of the first byte of buf that is not poison, or -1.
func changedByte(buf []byte) int {
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

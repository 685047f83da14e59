package bufpool

import (
	"bytes"
	"unsafe"
)

// In debug mode, memory is used only once. Instead of reusing a free buffer, or leaving it to the
// garbage collector, the pool quarantines it. A quarantined buffer remains filled with poison. It
// is inspected when it leaves the quarantine, when Faults is called, and when the garbage collector
// frees it. Its node stays registered until it is freed, so that a second Put of the slice is
// detected, however late.

// Limits of the quarantine of one class: in buffers, and in bytes. It always has room for one
// buffer.
const (
	maxQuarantined      = 1 << 10
	maxQuarantinedBytes = 4 << 20
)

// quarantineLocked moves f, which is free but in no list, to the quarantine. If the quarantine is
// full, its oldest buffer is inspected and removed. The caller holds the lock of the only list of
// c.
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

// inspectLocked reports a fault if the free buffer of n was written to. It does so once for each
// buffer. The caller holds the lock of n.home.
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

// poison is the byte that fills free buffers in debug mode. Zero would be a bad choice, because
// callers often write zeros.
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

package rivals

import (
	"bufio"
	"io"
	"sync"

	"go.uber.org/zap/zapcore"
)

// A Writer buffers records. Write is safe for concurrent use. Drain writes all buffered records and
// stops the writer; it neither syncs nor closes the destination.
type Writer interface {
	io.Writer
	Drain() error
}

// Unbuffered passes each record to the destination in one Write.
type Unbuffered struct{ io.Writer }

// Drain does nothing.
func (Unbuffered) Drain() error { return nil }

// MutexCopy is the lower bound for a buffering writer. It only copies records under a mutex into 64
// KiB of memory.
type MutexCopy struct {
	mu  sync.Mutex
	buf [64 << 10]byte
	off int
}

// Write copies p, which must not be larger than the buffer.
func (m *MutexCopy) Write(p []byte) (int, error) {
	m.mu.Lock()
	if len(m.buf)-m.off < len(p) {
		m.off = 0
	}
	m.off += copy(m.buf[m.off:], p)
	m.mu.Unlock()
	return len(p), nil
}

// Drain does nothing.
func (m *MutexCopy) Drain() error { return nil }

// Bufio is a bufio.Writer with a mutex, the usual buffer of a logger.
type Bufio struct {
	mu sync.Mutex
	w  *bufio.Writer
}

// NewBufio returns a Bufio of size bytes.
func NewBufio(dst io.Writer, size int) *Bufio { return &Bufio{w: bufio.NewWriterSize(dst, size)} }

func (b *Bufio) Write(p []byte) (int, error) {
	b.mu.Lock()
	n, err := b.w.Write(p)
	b.mu.Unlock()
	return n, err
}

// Drain flushes the buffer.
func (b *Bufio) Drain() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.w.Flush()
}

// BWS is zap's BufferedWriteSyncer.
type BWS struct{ *zapcore.BufferedWriteSyncer }

// NewBWS returns a BWS with a buffer of size bytes and zap's default flush interval.
func NewBWS(dst io.Writer, size int) BWS {
	return BWS{&zapcore.BufferedWriteSyncer{WS: ZapSink(dst), Size: size}}
}

// Drain flushes and stops the writer.
func (b BWS) Drain() error { return b.Stop() }

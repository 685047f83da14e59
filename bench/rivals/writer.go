package rivals

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	phuslu "github.com/phuslu/log"
	"go.uber.org/zap/zapcore"

	"github.com/forebay-log/forebay/bench/harness"
)

// A Writer buffers records on their way to a destination. Write is safe for
// concurrent use. Drain hands everything over and ends the writer; it neither
// syncs nor closes the destination.
type Writer interface {
	io.Writer
	Drain() error
}

// MutexCopy is the floor under every buffering writer: a lock and a copy into
// 64 KiB of memory, over and over. Nothing reaches a destination.
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

// Bufio is a bufio.Writer behind a mutex, the usual way to buffer a logger.
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

// NewBWS returns a BWS of size bytes with zap's default flush interval.
func NewBWS(dst io.Writer, size int) BWS {
	return BWS{&zapcore.BufferedWriteSyncer{WS: ZapSink(dst), Size: size}}
}

// Drain stops it.
func (b BWS) Drain() error { return b.Stop() }

// Channel passes a copy of each record through a channel to a goroutine that
// writes it to a buffering writer, as logf did before its slab writer.
type Channel struct {
	ch   chan []byte
	done chan error
}

// NewChannel returns a Channel of capacity records before next, which it drains
// at the end.
func NewChannel(capacity int, next Writer) *Channel {
	c := &Channel{ch: make(chan []byte, capacity), done: make(chan error, 1)}
	go func() {
		var first error
		for p := range c.ch {
			if _, err := next.Write(p); err != nil && first == nil {
				first = err
			}
		}
		if err := next.Drain(); first == nil {
			first = err
		}
		c.done <- first
	}()
	return c
}

func (c *Channel) Write(p []byte) (int, error) {
	q := make([]byte, len(p))
	copy(q, p)
	c.ch <- q
	return len(p), nil
}

// Drain closes the channel and waits for the goroutine. No Write may run beside
// it.
func (c *Channel) Drain() error {
	close(c.ch)
	return <-c.done
}

// PlainBufio is a bufio.Writer without a lock, for one goroutine.
type PlainBufio struct{ *bufio.Writer }

// Drain flushes the buffer.
func (b PlainBufio) Drain() error { return b.Flush() }

// Async is phuslu/log's asynchronous file writer: a channel and, on Linux,
// writev.
type Async struct {
	*phuslu.AsyncWriter
	path string
}

// NewAsync returns an Async whose channel holds capacity records. It writes a
// file of its own in dir.
func NewAsync(dir string, capacity uint) (Async, error) {
	dir, err := os.MkdirTemp(dir, "async-*")
	if err != nil {
		return Async{}, err
	}
	a := Async{path: filepath.Join(dir, "row.log")}
	a.AsyncWriter = &phuslu.AsyncWriter{ChannelSize: capacity, Writer: &phuslu.FileWriter{Filename: a.path}}
	return a, nil
}

// Drain closes writer and file.
func (a Async) Drain() error { return a.Close() }

// Tally reads the file. The writer names it after the time and makes a link to it
// in the background, perhaps not yet.
func (a Async) Tally() (harness.Tally, error) {
	names, err := filepath.Glob(filepath.Join(filepath.Dir(a.path), "row.*.log"))
	if err != nil || len(names) != 1 {
		return harness.Tally{}, fmt.Errorf("%d files of phuslu's, want one: %v", len(names), err)
	}
	f, err := os.Open(names[0])
	if err != nil {
		return harness.Tally{}, err
	}
	defer f.Close()
	return FileByLine(f)
}

// Remove deletes what it wrote.
func (a Async) Remove() error { return os.RemoveAll(filepath.Dir(a.path)) }

package diskqueue

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// benchBatch returns a batch of 200-byte records with size bytes in total, like one slab of a
// Writer.
func benchBatch(size int) *batch.Batch {
	var bl batch.Batch
	rec := append(bytes.Repeat([]byte("x"), 199), '\n')
	for i := range size / len(rec) {
		bl.Append(rec, uint64(i+1), batch.Meta{Time: 1_700_000_000_000_000_000 + int64(i)*100_000, Level: 0})
	}
	return &bl
}

const (
	benchRound = 16 << 20 // bytes per round; rounds of the spool alternate with rounds of plain I/O
)

var benchSizes = []int{16 << 10, 64 << 10, 1 << 20}

// BenchmarkAppend measures Append and, for comparison, a plain sequential write of the same payload
// to a new file. The two alternate within one run.
func BenchmarkAppend(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			in := benchBatch(size)
			data := in.AppendTo(nil)
			rounds := benchRound / len(data)
			var ours, plain fastest
			b.ReportAllocs()
			for b.Loop() {
				ours.add(benchAppend(b, in, rounds))
				plain.add(benchWrite(b, data, rounds))
			}
			benchReport(b, ours, plain, rounds*len(data))
		})
	}
}

// BenchmarkNext measures Next and, for comparison, a plain sequential read of the same payload. The
// two alternate within one run. Both read from the page cache, because the data was just written.
func BenchmarkNext(b *testing.B) { benchReading(b, false) }

// BenchmarkReplay measures Next like BenchmarkNext, but also acknowledges every batch, which
// deletes segments. The plain variant deletes its file.
func BenchmarkReplay(b *testing.B) { benchReading(b, true) }

func benchReading(b *testing.B, settle bool) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			in := benchBatch(size)
			data := in.AppendTo(nil)
			rounds := benchRound / len(data)
			var ours, plain fastest
			b.ReportAllocs()
			for b.Loop() {
				ours.add(benchNext(b, in, rounds, settle))
				plain.add(benchRead(b, data, rounds, settle))
			}
			benchReport(b, ours, plain, rounds*len(data))
		})
	}
}

// fastest is the shortest time of several rounds, because disturbances only make rounds longer.
type fastest time.Duration

func (f *fastest) add(d time.Duration) {
	if *f == 0 || d < time.Duration(*f) {
		*f = fastest(d)
	}
}

// benchReport reports the throughput of the spool and of plain I/O, each in its fastest round, and
// the ratio of the two.
func benchReport(b *testing.B, ours, plain fastest, round int) {
	b.ReportMetric(float64(round)/time.Duration(ours).Seconds()/1e6, "MB/s")
	b.ReportMetric(float64(round)/time.Duration(plain).Seconds()/1e6, "plain-MB/s")
	b.ReportMetric(float64(plain)/float64(ours), "of-plain")
	b.ReportMetric(0, "ns/op")
}

func benchAppend(b *testing.B, in *batch.Batch, rounds int) time.Duration {
	s, err := Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	for range rounds {
		if _, err := s.Append(in); err != nil {
			b.Fatal(err)
		}
	}
	mustClose(b, s)
	d := time.Since(start)
	if _, _, err := Purge(s.dir.path, false); err != nil {
		b.Fatal(err)
	}
	return d
}

func benchWrite(b *testing.B, data []byte, rounds int) time.Duration {
	name := filepath.Join(b.TempDir(), "plain")
	start := time.Now()
	writeFile(b, name, data, rounds)
	d := time.Since(start)
	if err := os.Remove(name); err != nil {
		b.Fatal(err)
	}
	return d
}

func writeFile(b *testing.B, name string, data []byte, rounds int) {
	f, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	for range rounds {
		if _, err := f.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

func benchNext(b *testing.B, in *batch.Batch, rounds int, settle bool) time.Duration {
	s, err := Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for range rounds {
		if _, err := s.Append(in); err != nil {
			b.Fatal(err)
		}
	}
	start := time.Now()
	for range rounds {
		_, seq, err := s.Next()
		if err != nil {
			b.Fatal(err)
		}
		if settle {
			if err := s.Ack(seq); err != nil {
				b.Fatal(err)
			}
			continue
		}
		s.mu.Lock()
		s.reader.handedOut.recycle(len(s.reader.handedOut.list)) // without this, each batch would keep its buffer
		s.mu.Unlock()
	}
	d := time.Since(start)
	mustClose(b, s)
	if _, _, err := Purge(s.dir.path, false); err != nil {
		b.Fatal(err)
	}
	return d
}

// benchRead writes a file in pieces of len(data) bytes and reads it in the same pieces. Because the
// file was just written, it is in the page cache, like the spool in the other variant.
func benchRead(b *testing.B, data []byte, rounds int, remove bool) time.Duration {
	name := filepath.Join(b.TempDir(), "plain")
	writeFile(b, name, data, rounds)
	buf := make([]byte, len(data))
	start := time.Now()
	f, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	for range rounds {
		if _, err := f.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	d := time.Since(start)
	if err := os.Remove(name); err != nil {
		b.Fatal(err)
	}
	if remove {
		return time.Since(start)
	}
	return d
}

// BenchmarkAppendNextAck measures Append, Next and Ack of one batch.
func BenchmarkAppendNextAck(b *testing.B) {
	in := benchBatch(64 << 10)
	s, err := Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(in.Bytes()))
	for b.Loop() {
		if _, err := s.Append(in); err != nil {
			b.Fatal(err)
		}
		_, seq, err := s.Next()
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Ack(seq); err != nil {
			b.Fatal(err)
		}
	}
	mustClose(b, s)
}

package rivals

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/forebay-log/forebay/bench/harness"
)

// Discard is a destination that counts calls and bytes. It replaces io.Discard, because some
// loggers recognize that and skip their work. It is not safe for concurrent use.
type Discard struct {
	Writes uint64
	Bytes  uint64
}

// Write counts p and discards it.
func (d *Discard) Write(p []byte) (int, error) {
	d.Writes++
	d.Bytes += uint64(len(p))
	return len(p), nil
}

// ByWrite returns the tally, provided that each Write passes one record.
func (d *Discard) ByWrite() (harness.Tally, error) {
	return harness.Tally{Records: d.Writes, Bytes: d.Bytes}, nil
}

// BySize returns the tally, provided that every record has the given number of bytes.
func (d *Discard) BySize(record int) (t harness.Tally, err error) {
	if d.Bytes%uint64(record) != 0 {
		return t, fmt.Errorf("%d bytes at the destination are not a whole number of %d-byte records", d.Bytes, record)
	}
	return harness.Tally{Records: d.Bytes / uint64(record), Bytes: d.Bytes}, nil
}

// Lines returns the tally of a file, whose lines it counts.
func Lines(path string) (t harness.Tally, err error) {
	f, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer f.Close()
	buf := make([]byte, 256<<10)
	for {
		n, err := f.Read(buf)
		t.Records += uint64(bytes.Count(buf[:n], []byte{'\n'}))
		t.Bytes += uint64(n)
		if err == io.EOF {
			return t, nil
		}
		if err != nil {
			return t, err
		}
	}
}

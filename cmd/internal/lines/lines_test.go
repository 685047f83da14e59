package lines_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/lines"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// all reads r to its end. It returns the lines and the error. A line that is too long is returned
// as "…".
func all(r *lines.Reader) (out []string, err error) {
	for {
		line, err := r.Next()
		switch {
		case err == nil:
			out = append(out, string(line))
		case lines.IsTooLong(err):
			out = append(out, "…")
		default:
			return out, err
		}
	}
}

func TestNextSplitsAtNewlines(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string // lines, separated by |
	}{
		{"", ""},
		{"a", "a"},
		{"a\n", "a\n"},
		{"\n", "\n"},
		{"\n\n", "\n|\n"},
		{"a\nb", "a\n|b"},
		{"a\r\nb\r\n", "a\r\n|b\r\n"},
		{"a\rb\n", "a\rb\n"},
		{"\x00\xff\n\x00", "\x00\xff\n|\x00"},
		{"\ufeffa\n\ufeffb\n", "a\n|\ufeffb\n"},
		{"\ufeff", ""},
		{"\ufeff\n", "\n"},
		{"\ufeff\ufeff\n", "\ufeff\n"},
		{"\ufeff12345", "12345"},
		{"\xef\xbb\n", "\xef\xbb\n"},
		// The limit of a line is 5 bytes.
		{"12345\n", "12345\n"},
		{"12345\r\n", "12345\r\n"},
		{"12345", "12345"},
		{"123456\n", "…"},
		{"123456", "…"},
		{"12345\r", "…"}, // a '\r' that is not followed by '\n' is part of the line
		{"1234\r", "1234\r"},
		{"12345\r\r\n", "…"},
		{"123456\r\nx\n", "…|x\n"},
		{"1234567890\n\n1234567890", "…|\n|…"},
		{strings.Repeat("x", 1<<20) + "\nok\n", "…|ok\n"},
	} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "by byte": iotest.OneByteReader, "with EOF": iotest.DataErrReader,
		} {
			r := lines.New(wrap(strings.NewReader(c.in)), 5)
			got, err := all(r)
			if s := strings.Join(got, "|"); s != c.want || err != io.EOF {
				t.Errorf("%.40q %s: got %q, want %q (%v)", c.in, name, s, c.want, err)
			}
			if r.Offset() != int64(len(c.in)) {
				t.Errorf("%.40q %s: offset %d, want %d", c.in, name, r.Offset(), len(c.in))
			}
		}
	}
}

func TestTooLongErrorHasLength(t *testing.T) {
	_, err := lines.New(strings.NewReader("123456\n"), 5).Next()
	var e *lines.TooLongError
	if !errors.As(err, &e) || e.Bytes != 7 || e.Max != 5 || !strings.Contains(err.Error(), "7 bytes") {
		t.Error(err)
	}
}

func TestErrorComesLast(t *testing.T) {
	broken := errors.New("broken")
	got, err := all(lines.New(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), 5))
	if strings.Join(got, "|") != "a\n|b" || err != broken {
		t.Error(got, err)
	}
	if _, err := lines.New(stuckReader{}, 5).Next(); err != io.ErrNoProgress {
		t.Error(err)
	}
}

// A stuckReader returns neither data nor an error.
type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

// A zeroReader returns NUL bytes. left is the number of remaining bytes.
type zeroReader struct{ left int }

func (e *zeroReader) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	clear(p[:n])
	e.left -= n
	return n, nil
}

// Skipping a line of 1 GiB needs few allocations, because the line is not buffered as a whole.
func TestLongLineNeedsNoMemory(t *testing.T) {
	got := allocs.PerRun(1, func() {
		r := lines.New(&zeroReader{1 << 30}, 1000)
		if _, err := r.Next(); !lines.IsTooLong(err) {
			t.Error(err)
		}
	})
	if got > 6 {
		t.Errorf("%g allocations, want at most 6", got)
	}
}

// The buffer is at most twice as large as the maximum length of a line.
func TestBufferIsBounded(t *testing.T) {
	const max = 1 << 20
	in := bytes.Repeat(append(bytes.Repeat([]byte{'x'}, max), '\n'), 8)
	src := &sizeRecorder{Reader: bytes.NewReader(in)}
	got, err := all(lines.New(src, max))
	if len(got) != 8 || err != io.EOF || src.most > 2*(max+2) {
		t.Errorf("got %d lines and %v; the largest read has %d bytes, want at most %d", len(got), err, src.most, 2*(max+2))
	}
}

// A sizeRecorder records the size of the largest buffer passed to Read.
type sizeRecorder struct {
	*bytes.Reader
	most int
}

func (w *sizeRecorder) Read(p []byte) (int, error) {
	w.most = max(w.most, len(p))
	return w.Reader.Read(p)
}

// charsetOf parses the name of a charset.
func charsetOf(t testing.TB, name string) *charset.Charset {
	t.Helper()
	c, err := charset.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Lines are returned in UTF-8. The limit applies to the length in the stream and to the length in
// UTF-8. Offset counts the bytes in the stream.
func TestLinesAreDecoded(t *testing.T) {
	for _, c := range []struct{ charset, in, want string }{
		{"latin1", "gr\xfcn\nx", "grün\n|x"},
		{"latin1", "\xfc\xfc\xfc\n\xfc\n", "…|ü\n"}, // 6 bytes in UTF-8
		{"latin1", "\xff\xfea\x00\n\x00", "a\n"},
		{"utf-16", "\xfe\xff\x00a\x00\n", "a\n"},
		{"utf-16le", "a\x00b\x00\n\x00\x00\x0a\n\x00", "ab\n|\u0a00\n"},
		{"utf-16le", "a\x00b\x00\r\x00\n\x00", "ab\r\n"},
		{"utf-16le", "a\x00b\x00c\x00\n\x00x\x00\n\x00", "…|x\n"},
		{"utf-16be", "\x00a\x00b\x00c\x00\n\x00x\x00\n", "…|x\n"},
		{"utf-16be", strings.Repeat("\x0a\x00", 99999) + "\x00\n\x00x\x00\n", "…|x\n"},
		{"utf-16be", "\x00a\x00\n\x00", "a\n|\ufffd"},
		{"utf-16be", "", ""},
	} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "by byte": iotest.OneByteReader, "with EOF": iotest.DataErrReader,
		} {
			r := lines.New(wrap(strings.NewReader(c.in)), 5)
			r.Charset = charsetOf(t, c.charset)
			got, err := all(r)
			if s := strings.Join(got, "|"); s != c.want || err != io.EOF || r.Offset() != int64(len(c.in)) {
				t.Errorf("%s, %.40q %s: got %q, want %q, offset %d (%v)", c.charset, c.in, name, s, c.want, r.Offset(), err)
			}
		}
	}
}

// Decoding a stream line by line has the same result as decoding it at once, whatever the sizes of
// the reads.
func FuzzCharset(f *testing.F) {
	f.Add([]byte("gr\xfcn\n\x81\x40\n\xff"), uint8(12), uint64(1))
	for seed := range uint64(20) { // reads end within and between code units
		f.Add([]byte("\xfe\xff\x00a\x0a\x00\x00\n\x00b"), uint8(1), seed)
	}
	f.Add([]byte("\x81\n\x81\x40\n"), uint8(26), uint64(3))
	f.Fuzz(func(t *testing.T, in []byte, which uint8, seed uint64) {
		cs := charsetOf(t, charset.Names()[int(which)%len(charset.Names())])
		r := lines.New(&shortReader{bytes.NewReader(in), rand.New(rand.NewPCG(seed, 0))}, 1<<20)
		r.Charset = cs
		got, err := all(r)
		detected, mark := cs.Detect(in)
		want := slices.Collect(strings.Lines(string(detected.Append(nil, in[mark:]))))
		if !slices.Equal(got, want) || err != io.EOF || r.Offset() != int64(len(in)) {
			t.Errorf("%s: got %q, want %q, offset %d (%v)", cs, got, want, r.Offset(), err)
		}
	})
}

// A shortReader returns at most seven bytes from each Read.
type shortReader struct {
	*bytes.Reader
	rnd *rand.Rand
}

func (p *shortReader) Read(b []byte) (int, error) {
	return p.Reader.Read(b[:min(len(b), 1+p.rnd.IntN(7))])
}

// The returned lines together are the stream without its byte order mark and without the lines that
// are too long.
func FuzzNext(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\n\x00\xff"), 3)
	f.Add([]byte("123456\n12345\r\n12345\r"), 5)
	f.Add([]byte("\ufeff123456\n\ufeff\n"), 6)
	f.Fuzz(func(t *testing.T, in []byte, max int) {
		max = 1 + (max&0xff+256)&0xff
		r := lines.New(iotest.HalfReader(bytes.NewReader(in)), max)
		var got, want []byte
		for {
			line, err := r.Next()
			if lines.IsTooLong(err) {
				continue
			}
			if err != nil {
				break
			}
			got = append(got, line...)
		}
		for line := range bytes.Lines(bytes.TrimPrefix(in, []byte("\ufeff"))) {
			text := line
			if t, ok := bytes.CutSuffix(line, []byte{'\n'}); ok {
				text = bytes.TrimSuffix(t, []byte{'\r'})
			}
			if len(text) <= max {
				want = append(want, line...)
			}
		}
		if !bytes.Equal(got, want) || r.Offset() != int64(len(in)) {
			t.Errorf("max %d: got %q, want %q, offset %d", max, got, want, r.Offset())
		}
	})
}

// All complete lines are returned before the next Read of the source, and before the call of
// BeforeRead that precedes it.
func TestLinesAreReturnedBeforeNextRead(t *testing.T) {
	var r *lines.Reader
	reads := 0
	src := iotest.OneByteReader(strings.NewReader("a\n\nlong\nb"))
	r = lines.New(src, 3)
	var at []int64
	r.BeforeRead = func() {
		reads++
		at = append(at, r.Offset())
	}
	if got, err := all(r); strings.Join(got, "") != "a\n\n…b" || err != io.EOF {
		t.Fatalf("%q, %v", got, err)
	}
	if want := []int64{0, 0, 2, 3, 3, 3, 3, 3, 8, 8}; !slices.Equal(at[:min(len(at), len(want))], want) {
		t.Errorf("offsets before reads are %d, want %d", at, want)
	}
}

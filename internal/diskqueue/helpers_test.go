package diskqueue

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"log/slog"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(childMain(dir))
	}
	goleak.VerifyTestMain(m)
}

const testDir = "/spool"

// record returns the content of record n. It contains n and a checksum, so that a reader can
// distinguish a whole record from a torn or invented one. Its length depends on n.
func record(n int) []byte {
	if p, ok := records.Load(n); ok {
		return p.([]byte)
	}
	size := 20 + n*7919%400
	if n%97 == 0 {
		size = 3000
	}
	p := fmt.Appendf(nil, "%d ", n)
	p = append(p, bytes.Repeat([]byte{byte('a' + n%26)}, size)...)
	p = fmt.Appendf(p, " %08x\n", crc32.ChecksumIEEE(p))
	if n < 100_000 {
		records.Store(n, p)
	}
	return p
}

var records sync.Map // content by number; generating it again would take most of the test time

// recordNumber returns the number of the record with content p. It returns an error if p is not a
// complete record.
func recordNumber(p []byte) (int, error) {
	num, _, _ := strings.Cut(string(p), " ")
	n, err := strconv.Atoi(num)
	if err != nil {
		return 0, fmt.Errorf("no record: %.40q", p)
	}
	if !bytes.Equal(p, record(n)) {
		return 0, fmt.Errorf("record %d is torn: %.40q", n, p)
	}
	return n, nil
}

// recordMeta returns the metadata and the stream of record n.
func recordMeta(n int) (m batch.Meta, stream string) {
	m = batch.Meta{Time: int64(n) * 1_000_003, Level: slog.Level(n%4*4 - 4)}
	if n%5 == 0 {
		m.Time = 0
	}
	return m, fmt.Sprintf("app.%d", n/3%7)
}

// testDict is a dictionary whose stream numbers depend on salt, because the stream numbers of two
// processes also differ.
type testDict struct {
	mu   sync.Mutex
	salt uint32
	ids  map[string]uint32
	defs map[uint32]string
}

func newTestDict(salt uint32) *testDict {
	return &testDict{salt: salt, ids: map[string]uint32{}, defs: map[uint32]string{}}
}

func (d *testDict) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	def, ok := d.defs[id]
	return append(dst, def...), ok
}

func (d *testDict) Stream(def []byte) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, ok := d.ids[string(def)]
	if !ok {
		id = 1 + d.salt + uint32(len(d.ids))
		d.ids[string(def)], d.defs[id] = id, string(def)
	}
	return id
}

func (d *testDict) name(id uint32) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.defs[id]
}

// testCodec has a content type and a schema version.
type testCodec struct {
	opaque
	schema uint32
}

func (c testCodec) SchemaVersion() uint32 { return c.schema }

func testCodecs(contentType string, schema uint32) batch.Codec {
	return testCodec{opaque: opaque(contentType), schema: schema}
}

var formA, formB = testCodec{opaque: "test/a", schema: 1}, testCodec{opaque: "test/b", schema: 7}

// testOrigin returns the origin of a batch that begins with record n.
func testOrigin(n int) (id [16]byte) {
	copy(id[:], fmt.Sprintf("%016d", n))
	return id
}

// sharedOrigin returns an origin that several consecutive batches share.
func sharedOrigin(n int) [16]byte { return [16]byte{'s', byte(n / 1000), byte(n / 1000 >> 8)} }

// numbered returns a batch of the records with numbers in [first, first+n), sometimes in several
// runs.
func numbered(first, n int, d *testDict, c batch.Codec) *batch.Batch {
	out := &batch.Batch{Codec: c, Origin: testOrigin(first)}
	for n > 0 {
		k := min(n, 1+first%5*9)
		var bl batch.Batch
		for i := first; i < first+k; i++ {
			m, stream := recordMeta(i)
			if d != nil {
				m.Stream = d.Stream([]byte(stream))
			}
			bl.Append(record(i), uint64(i)*2+1, m)
		}
		for _, r := range bl.Runs {
			out.Add(r)
		}
		first, n = first+k, n-k
	}
	return out
}

// numbers returns the numbers of the records in b. It checks the content and metadata of each
// record, and the origin of b if it is set.
func numbers(b *batch.Batch, d *testDict) (ns []int, err error) {
	for _, r := range b.All() {
		n, err := recordNumber(r.Data)
		if err != nil {
			return nil, err
		}
		m, stream := recordMeta(n)
		got := r.Meta
		got.Stream = 0
		if got != m || r.Ticket != uint64(n)*2+1 {
			return nil, fmt.Errorf("record %d: meta %+v ticket %d, want %+v", n, got, r.Ticket, m)
		}
		if d != nil && d.name(r.Stream) != stream {
			return nil, fmt.Errorf("record %d: stream %d is %q, want %q", n, r.Stream, d.name(r.Stream), stream)
		}
		ns = append(ns, n)
	}
	if len(ns) > 0 && b.Origin != [16]byte{} && b.Origin != testOrigin(ns[0]) && b.Origin != sharedOrigin(ns[0]) {
		return nil, fmt.Errorf("a batch from record %d has origin %q", ns[0], b.Origin[:])
	}
	return ns, nil
}

// consecutive checks that ns is first, first+1, and so on.
func consecutive(ns []int, first int) error {
	for i, n := range ns {
		if n != first+i {
			return fmt.Errorf("record %d instead of %d", n, first+i)
		}
	}
	return nil
}

// isCorrupt reports whether err is a *spool.CorruptError.
func isCorrupt(err error) bool {
	var e *spool.CorruptError
	return errors.As(err, &e)
}

func mustOpen(t testing.TB, fsys vfs.FS, o *spool.Options) *Spool {
	t.Helper()
	s, err := open(fsys, testDir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mustAppend appends the records with numbers in [first, first+n) as one batch and returns its
// number.
func mustAppend(t testing.TB, s *Spool, first, n int) uint64 {
	t.Helper()
	seq, err := s.Append(numbered(first, n, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// each yields the batches that Next returns, until io.EOF.
func each(t testing.TB, s *Spool) iter.Seq2[uint64, *batch.Batch] {
	t.Helper()
	return func(yield func(uint64, *batch.Batch) bool) {
		for {
			b, seq, err := s.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !yield(seq, b) {
				return
			}
		}
	}
}

// drain reads all batches and returns the record numbers. If ack is set, it acknowledges the
// batches.
func drain(t testing.TB, s *Spool, ack bool) (ns []int) {
	t.Helper()
	for seq, b := range each(t, s) {
		more, err := numbers(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		ns = append(ns, more...)
		if ack {
			if err := s.Ack(seq); err != nil {
				t.Fatal(err)
			}
		}
	}
	return ns
}

// settle reads and acknowledges the next n batches.
func settle(t testing.TB, s *Spool, n int) {
	t.Helper()
	for range n {
		_, seq, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ack(seq); err != nil {
			t.Fatal(err)
		}
	}
}

func mustClose(t testing.TB, s *Spool) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustBalance(t testing.TB, s *Spool) {
	t.Helper()
	if err := s.Account().Check(); err != nil {
		t.Fatal(err)
	}
}

// content returns the content of a file in the test directory.
func content(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	f, err := (&directory{fs: fsys, path: testDir}).open(name, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, size)
	if err := readFull(f, p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// setContent creates or replaces a file in the test directory.
func setContent(t testing.TB, fsys vfs.FS, name string, p []byte) {
	t.Helper()
	if err := fsys.MkdirAll(testDir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.OpenFile(testDir+"/"+name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(p, 0); err != nil {
		t.Fatal(err)
	}
}

func names(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	ns, err := fsys.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// testSeed returns the random source of a test, seeded by [testkit.Seed].
func testSeed(t *testing.T) *rand.Rand {
	return rand.New(rand.NewSource(int64(testkit.Seed(t))))
}

// eventLog collects events.
type eventLog struct {
	mu sync.Mutex
	es []batch.Event
}

func (l *eventLog) add(e batch.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.es = append(l.es, e)
}

// ofKind waits until all events are reported, and returns those of the given kind.
func (l *eventLog) ofKind(t testing.TB, s *Spool, op string) (es []batch.Event) {
	t.Helper()
	for range 100 { // each waits briefly
		s.queue.events.Wait(t.Context())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.es {
		if e.Op == op {
			es = append(es, e)
		}
	}
	return es
}

func checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

package diskqueue

import (
	"bytes"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func goldenSegment(version uint16) string { return fmt.Sprintf("testdata/segment_v%d.golden", version) }

// Segments of each version can be read. The current version writes the same bytes as each version,
// except the version number and, compared with version 1, the origin.
func TestGolden(t *testing.T) {
	if *update {
		mem := vfs.NewMem()
		d := newTestDict(0)
		s := mustOpen(t, mem, &spool.Options{Streams: d})
		for i := range 3 {
			if _, err := s.Append(numbered(395+i*2, 2, d, formA)); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, s)
		if err := os.WriteFile(goldenSegment(formatVersion), content(t, mem, segmentName(1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for version := uint16(1); version <= formatVersion; version++ {
		want, err := os.ReadFile(goldenSegment(version))
		if err != nil {
			t.Fatal(err)
		}
		testGolden(t, version, want)
	}
}

func testGolden(t *testing.T, version uint16, want []byte) {
	mem := vfs.NewMem()
	setContent(t, mem, segmentName(1), want)
	g, _ := segmentFile(segmentName(1))
	if err := g.load(&directory{fs: mem, path: testDir}); err != nil {
		t.Fatal(err)
	}
	if g.version != version {
		t.Errorf("version %d, want %d", g.version, version)
	}
	head := g.frameHeader()
	got := g.segmentHeader.append(nil)
	s := mustOpen(t, mem, nil) // without a dictionary, stream numbers stay unchanged
	first := 395
	for range 3 {
		b, _, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		ns, err := numbers(b, nil)
		if err != nil || consecutive(ns, first) != nil || len(ns) != 2 || b.Codec.ContentType() != "test/a" {
			t.Fatalf("records %v: %v", ns, err)
		}
		if want := (version > 1); want != (b.Origin != [16]byte{}) {
			t.Errorf("version %d: origin %x", version, b.Origin)
		}
		first += 2

		var h frameHeader
		if !h.parse(want[len(got):][:head], g.seed()) {
			t.Fatal("frame header")
		}
		dict := bytes.Clone(want[len(got)+head:][:h.dict])
		index, records := appendIndex(nil, b)
		body := b.AppendTo(append(dict, index...))
		again := frameHeader{
			head: uint32(head), origin: b.Origin,
			bodyCRC: crc32.Update(g.seed(), castagnoli, body), dictCRC: crc32.Update(g.seed(), castagnoli, dict),
			dict: uint32(len(dict)), index: uint32(len(index)), payload: uint32(b.Bytes()),
			entries: uint32(b.Len()), records: uint32(records), at: h.at, time: h.time,
		}
		got = append(got, make([]byte, head)...)
		again.put(got[len(got)-head:], g.seed())
		got = append(got, body...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the format has changed")
	}
	// New batches go into a segment of the current version.
	if _, err := s.Append(numbered(first, 1, nil, formA)); err != nil {
		t.Fatal(err)
	}
	last := segmentName(2)
	if version == formatVersion {
		last = segmentName(1)
	}
	if got := content(t, mem, last); le.Uint16(got[12:]) != formatVersion {
		t.Errorf("version %d: an Append writes version %d", version, le.Uint16(got[12:]))
	}
	mustClose(t, s)
	// The stream definitions are also read.
	d := newTestDict(70)
	for e, err := range scan(mem, testDir, &spool.Options{Streams: d}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq > 3 {
			break
		}
		if _, err := numbers(e.Batch, d); err != nil {
			t.Fatal(err)
		}
	}
}

// The sizes of header and cursor equal those in docs/format/spool.md.
func TestFormatSizes(t *testing.T) {
	h := segmentHeader{form: form{contentType: "abc"}, first: mark{seq: 1}}
	if n := len(h.append(nil)); n != 72+3 || int64(n) != h.bytes() {
		t.Errorf("segment header of %d bytes", n)
	}
	c := cursorState{acked: mark{seq: 1}}
	if n := len(c.append(nil)); n != 64 {
		t.Errorf("cursor slot of %d bytes", n)
	}
	var back cursorState
	if !back.parse(c.append(nil)) || back != c {
		t.Errorf("%+v", back)
	}
	for _, head := range []uint32{56, 72} {
		in := frameHeader{head, 1, 2, 3, 4, 5, 6, 7, mark{8, 9}, 10, [16]byte{15: 11}}
		if head == 56 {
			in.origin = [16]byte{}
		}
		p := make([]byte, head)
		in.put(p, 42)
		var out frameHeader
		if !out.parse(p, 42) || out != in || out.parse(p, 43) {
			t.Errorf("%+v", out)
		}
	}
	if layout.SlotBytes != 32 {
		t.Error("the index leaves fields of layout.Slot out")
	}
}

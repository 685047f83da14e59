package spool

import (
	"bytes"
	"flag"
	"hash/crc32"
	"os"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vfs"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

const goldenSegment = "testdata/segment_v1.golden"

// The format on disk: a segment written by the first version is read, and what is
// in it is written the same way today.
func TestGolden(t *testing.T) {
	if *update {
		mem := vfs.NewMem()
		d := newTestDict(0)
		s := mustOpen(t, mem, &Options{Streams: d})
		for i := range 3 {
			if _, err := s.Append(numbered(395+i*2, 2, d, formA)); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, s)
		if err := os.WriteFile(goldenSegment, content(t, mem, segmentName(1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenSegment)
	if err != nil {
		t.Fatal(err)
	}
	mem := vfs.NewMem()
	setContent(t, mem, segmentName(1), want)
	g, _ := segmentFile(segmentName(1))
	if err := g.load(mem, testDir); err != nil {
		t.Fatal(err)
	}
	got := g.segmentHeader.append(nil)
	s := mustOpen(t, mem, nil) // stream numbers as they are
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
		first += 2

		var h frameHeader
		if !h.parse(want[len(got):], g.seed()) {
			t.Fatal("frame header")
		}
		dict := bytes.Clone(want[len(got)+frameHeaderBytes:][:h.dict])
		index, records := appendIndex(nil, b)
		body := b.AppendTo(append(dict, index...))
		again := frameHeader{
			bodyCRC: crc32.Update(g.seed(), castagnoli, body), dictCRC: crc32.Update(g.seed(), castagnoli, dict),
			dict: uint32(len(dict)), index: uint32(len(index)), payload: uint32(b.Bytes()),
			entries: uint32(b.Len()), records: uint32(records), seq: h.seq, rec: h.rec, at: h.at,
		}
		got = append(got, make([]byte, frameHeaderBytes)...)
		again.put(got[len(got)-frameHeaderBytes:], g.seed())
		got = append(got, body...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the format has changed")
	}
	mustClose(t, s)
	// The definitions are there too.
	d := newTestDict(70)
	for e, err := range scan(mem, testDir, &Options{Streams: d}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := numbers(e.Batch, d); err != nil {
			t.Fatal(err)
		}
	}
}

// The sizes that docs/format/spool.md gives.
func TestFormatSizes(t *testing.T) {
	h := segmentHeader{contentType: "abc", firstSeq: 1}
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
	in := frameHeader{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	var p [frameHeaderBytes]byte
	in.put(p[:], 42)
	var out frameHeader
	if !out.parse(p[:], 42) || out != in || out.parse(p[:], 43) {
		t.Errorf("%+v", out)
	}
	if batch.SlotBytes != 32 {
		t.Error("the index leaves fields of batch.Slot out")
	}
}

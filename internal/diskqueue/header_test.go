package diskqueue

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// A flipped bit anywhere in the header of a segment is damage: the file is reported and set aside.
// This also holds for a small file, where a flipped bit can make the length of the content type
// larger than the file.
func TestEveryBitOfSegmentHeader(t *testing.T) {
	for name, records := range map[string]int{"one record": 1, "larger than a header": 40} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			s := mustOpen(t, mem, nil)
			if _, err := s.Append(numbered(1, records, nil, formA)); err != nil {
				t.Fatal(err)
			}
			mem.ReleaseLocks()
			p := content(t, mem, segmentName(1))
			for bit := range 8 * (segmentHeaderBytes + len(formA.opaque)) {
				damaged := vfs.NewMem()
				q := slices.Clone(p)
				q[bit/8] ^= 1 << (bit % 8)
				setContent(t, damaged, segmentName(1), q)
				var log eventLog
				s := mustOpen(t, damaged, &spool.Options{OnEvent: log.add})
				st := s.Stats()
				if es := log.ofKind(t, s, "corrupt"); len(es) != 1 || !errors.As(es[0].Err, new(*spool.CorruptError)) || st.Damages != 1 || st.AsideFiles != 1 {
					t.Errorf("bit %d: events %v, stats %+v", bit, es, st)
				}
				mustClose(t, s)
				if got := names(t, damaged); !slices.Contains(got, segmentName(1)+corruptSuffix) {
					t.Errorf("bit %d: files %v", bit, got)
				}
			}
		})
	}
}

// A crash during the creation of a segment leaves a file without a batch, which is removed. A file
// with further bytes after the space of its header is set aside.
func TestUnfinishedSegmentHeader(t *testing.T) {
	h := segmentHeader{version: formatVersion, id: 1, first: mark{seq: 1}, form: form{contentType: "test/a"}}
	whole := h.append(nil)
	for name, c := range map[string]struct {
		content []byte
		aside   int
	}{
		"empty":             {nil, 0},
		"part of a header":  {whole[:segmentHeaderBytes-1], 0},
		"zeros":             {make([]byte, 200<<10), 0},
		"a header":          {whole, 0},
		"zeros and a byte":  {append(make([]byte, 100<<10), 1), 1},
		"zeros and a frame": {append(make([]byte, segmentHeaderBytes), 1), 1},
	} {
		mem := vfs.NewMem()
		setContent(t, mem, segmentName(1), c.content)
		s := mustOpen(t, mem, nil)
		if st := s.Stats(); st.AsideFiles != c.aside || int(st.Damages) != c.aside {
			t.Errorf("%s: %+v", name, st)
		}
		mustClose(t, s)
		if got := names(t, mem); len(got) != 2+c.aside {
			t.Errorf("%s: files %v", name, got)
		}
	}
}

// A frame without records, which only another program can write, is damage. The outlet never gets
// an empty batch.
func TestFrameWithoutRecordsIsDamage(t *testing.T) {
	head := segmentHeader{version: formatVersion, id: 1, first: mark{seq: 1}, form: form{contentType: "test/a"}}
	p := head.append(nil)
	frame := frameHeader{head: frameHeaderBytes, at: head.first, bodyCRC: head.seed(), dictCRC: head.seed()}
	p = append(p, make([]byte, frameHeaderBytes)...)
	frame.put(p[len(p)-frameHeaderBytes:], head.seed())
	mem := vfs.NewMem()
	setContent(t, mem, segmentName(1), p)
	var log eventLog
	s := mustOpen(t, mem, &spool.Options{OnEvent: log.add})
	if es := log.ofKind(t, s, "corrupt"); len(es) != 1 || !errors.Is(es[0].Err, errIndex) {
		t.Errorf("events %v", es)
	}
	if b, _, err := s.Next(); err != io.EOF {
		t.Errorf("Next returns %v, %v", b, err)
	}
	mustClose(t, s)
}

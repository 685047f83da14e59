package diskqueue

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// frameOffsets returns the offset of each frame in a segment file, and the size of the file.
func frameOffsets(t testing.TB, fsys vfs.FS, name string) (offs []int64) {
	t.Helper()
	g, _ := segmentFile(name)
	if err := g.load(&directory{fs: fsys, path: testDir}); err != nil {
		t.Fatal(err)
	}
	var r segmentReader
	if err := r.open(&directory{fs: fsys, path: testDir}, g, g.size, &spool.Options{}); err != nil {
		t.Fatal(err)
	}
	defer r.close()
	var h frameHeader
	for {
		offs = append(offs, r.off)
		if err := r.header(&h); err == io.EOF {
			return offs
		} else if err != nil {
			t.Fatal(err)
		}
		r.skip(&h)
	}
}

// threeSegments creates a spool as a killed process leaves it: three segments of four batches, each
// batch with ten records.
func threeSegments(t testing.TB) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	for i := range 12 {
		if i%4 == 0 {
			s.mu.Lock()
			_ = s.appender.seal()
			s.mu.Unlock()
		}
		mustAppend(t, s, i*10, 10)
	}
	mem.ReleaseLocks()
	if got := names(t, mem); !slices.Equal(got, []string{"00000001.seg", "00000002.seg", "00000003.seg", lockName, cursorName}) {
		t.Fatal(got)
	}
	return mem
}

// flip changes one byte of a file.
func flip(t testing.TB, fsys vfs.FS, name string, off int64) {
	t.Helper()
	p := content(t, fsys, name)
	p[off] ^= 0x40
	setContent(t, fsys, name, p)
}

// cut truncates a file to size bytes.
func cut(t testing.TB, fsys vfs.FS, name string, size int64) {
	t.Helper()
	setContent(t, fsys, name, content(t, fsys, name)[:size])
}

// unwrite clears the bytes of a file in [from, to), as if they had never reached the disk.
func unwrite(t testing.TB, fsys vfs.FS, name string, from, to int64) {
	t.Helper()
	p := content(t, fsys, name)
	clear(p[from:to])
	setContent(t, fsys, name, p)
}

// After any damage to a segment, Open succeeds. All batches before the damage and in other segments
// are delivered. The lost records are counted and reported once, with file and offset. The file is
// set aside.
func TestDamage(t *testing.T) {
	seg := func(n int) string { return segmentName(uint64(n)) }
	for _, c := range []struct {
		name   string
		break_ func(t *testing.T, mem *vfs.Mem, offs []int64)
		in     int      // number of the damaged segment, 1 to 3
		lost   []int    // indexes of the lost batches, 0 to 11
		cause  error    // nil: no damage, only torn frames
		counts bool     // the number of lost records is known
		atOpen bool     // Open finds the damage, so lost records do not count as recovered
		aside  []string // files that remain after everything was read
	}{
		{
			name: "body of a middle frame", in: 2, lost: []int{6, 7}, cause: errBody, counts: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { flip(t, mem, seg(2), offs[2]+200) },
			aside:  []string{seg(2) + corruptSuffix},
		}, {
			name: "header of a middle frame", in: 2, lost: []int{6, 7}, cause: errFrame, counts: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { flip(t, mem, seg(2), offs[2]+10) },
			aside:  []string{seg(2) + corruptSuffix},
		}, {
			name: "first frame", in: 1, lost: []int{0, 1, 2, 3}, cause: errFrame, counts: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { flip(t, mem, seg(1), offs[0]) },
			aside:  []string{seg(1) + corruptSuffix},
		}, {
			name: "segment header", in: 2, lost: []int{4, 5, 6, 7}, cause: errHeader, counts: true, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, _ []int64) { flip(t, mem, seg(2), 50) },
			aside:  []string{seg(2) + corruptSuffix},
		}, {
			name: "first segment header", in: 1, lost: []int{0, 1, 2, 3}, cause: errHeader, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, _ []int64) { flip(t, mem, seg(1), 0) },
			aside:  []string{seg(1) + corruptSuffix},
		}, {
			name: "last segment header", in: 3, lost: []int{8, 9, 10, 11}, cause: errHeader, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, _ []int64) { flip(t, mem, seg(3), 20) },
			aside:  []string{seg(3) + corruptSuffix},
		}, {
			name: "cut inside a frame", in: 2, lost: []int{7}, cause: errTruncated, counts: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { cut(t, mem, seg(2), offs[3]+100) },
			aside:  []string{seg(2) + corruptSuffix},
		}, {
			name: "cut between frames", in: 2, lost: []int{6, 7}, cause: errTruncated, counts: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { cut(t, mem, seg(2), offs[2]) },
			aside:  []string{seg(2) + corruptSuffix},
		}, {
			name: "empty middle file", in: 2, lost: []int{4, 5, 6, 7}, cause: errTruncated, counts: true, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, _ []int64) { cut(t, mem, seg(2), 0) },
			aside:  []string{seg(2) + corruptSuffix},
		}, {
			name: "zeros in the middle", in: 1, lost: []int{2, 3}, cause: errTruncated, counts: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { unwrite(t, mem, seg(1), offs[2], offs[4]) },
			aside:  []string{seg(1) + corruptSuffix},
		}, {
			name: "newer format", in: 2, lost: []int{4, 5, 6, 7}, cause: errVersion, counts: true, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, _ []int64) {
				p := content(t, mem, seg(2))
				p[12]++
				le.PutUint32(p[8:], checksum(p[12:segmentHeaderBytes]))
				setContent(t, mem, seg(2), p)
			},
			aside: []string{seg(2) + corruptSuffix},
		}, {
			name: "misnamed", in: 2, lost: []int{4, 5, 6, 7}, cause: errMisnamed, counts: true, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, _ []int64) { setContent(t, mem, seg(2), content(t, mem, seg(3))) },
			aside:  []string{seg(2) + corruptSuffix},
		}, {
			name: "out of order", in: 3, lost: []int{8, 9, 10, 11}, cause: errOrder, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, _ []int64) {
				p := content(t, mem, seg(1)) // repeats the first frame with another number
				p[40] = 3
				le.PutUint32(p[8:], checksum(p[12:segmentHeaderBytes]))
				setContent(t, mem, seg(3), p)
			},
			aside: []string{seg(3) + corruptSuffix},
		}, {
			name: "frames of another segment", in: 2, lost: []int{5, 6, 7}, cause: errFrame, counts: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) {
				p, other := content(t, mem, seg(2)), content(t, mem, seg(1))
				setContent(t, mem, seg(2), append(p[:offs[1]:offs[1]], other[offs[1]:]...))
			},
			aside: []string{seg(2) + corruptSuffix},
		}, {
			name: "last body", in: 3, lost: []int{11}, cause: errBody, counts: true, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { flip(t, mem, seg(3), offs[3]+300) },
			aside:  []string{seg(3) + corruptSuffix},
		}, {
			name: "a body of the last segment, more behind", in: 3, lost: []int{9, 10, 11}, cause: errBody, counts: true, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { flip(t, mem, seg(3), offs[1]+300) },
			aside:  []string{seg(3) + corruptSuffix},
		}, {
			name: "a frame header of the last segment", in: 3, lost: []int{10, 11}, cause: errFrame, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { flip(t, mem, seg(3), offs[2]+40) },
			aside:  []string{seg(3) + corruptSuffix},
		}, {
			name: "torn tail", in: 3, lost: []int{11},
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { cut(t, mem, seg(3), offs[4]-1) },
		}, {
			name: "torn frame header", in: 3, lost: []int{11},
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { cut(t, mem, seg(3), offs[3]+17) },
		}, {
			name: "unwritten tail", in: 3, lost: []int{10, 11},
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { unwrite(t, mem, seg(3), offs[2], offs[4]) },
		}, {
			name: "unwritten page of the last body", in: 3, lost: []int{11},
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { unwrite(t, mem, seg(3), 3*vfs.PageBytes, offs[4]) },
		}, {
			name: "unwritten page with the last frame header", in: 3, lost: []int{11},
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { unwrite(t, mem, seg(3), offs[3], 3*vfs.PageBytes) },
		}, {
			name: "unwritten page with two frame headers", in: 3, lost: []int{10, 11},
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { unwrite(t, mem, seg(3), offs[2], 3*vfs.PageBytes) },
		}, {
			name: "unwritten page, more behind", in: 3, lost: []int{9, 10, 11}, cause: errBody, counts: true, atOpen: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) {
				unwrite(t, mem, seg(3), vfs.PageBytes, 2*vfs.PageBytes)
			},
			aside: []string{seg(3) + corruptSuffix},
		}, {
			name: "unwritten page of a middle segment", in: 2, lost: []int{7}, cause: errTruncated, counts: true,
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { unwrite(t, mem, seg(2), 2*vfs.PageBytes, offs[4]) },
			aside:  []string{seg(2) + corruptSuffix},
		}, {
			name: "unfinished new segment", in: 3, lost: []int{8, 9, 10, 11},
			break_: func(t *testing.T, mem *vfs.Mem, offs []int64) { cut(t, mem, seg(3), 40) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := threeSegments(t)
			c.break_(t, mem, frameOffsets(t, mem, seg(c.in)))
			var want []int
			for b := range 12 {
				for n := b * 10; n < b*10+10 && !slices.Contains(c.lost, b); n++ {
					want = append(want, n)
				}
			}
			lost := uint64(0)
			if c.counts {
				lost = uint64(len(c.lost) * 10)
			}
			// List works on the damaged files before the spool is opened.
			l, err := inspect(mem, testDir, true)
			if err != nil {
				t.Fatal(err)
			}
			if damaged := l.Damaged == 1; damaged != (c.cause != nil) {
				t.Errorf("Verify: %+v", l.Files)
			}
			if d := l.Files[c.in-1].Damage; c.cause != nil && (d == nil || !errors.Is(d, c.cause) || d.Segment != seg(c.in)) {
				t.Errorf("Verify: %v, want %v", d, c.cause)
			}
			if got := l.Files[c.in-1].Torn; got != (c.cause == nil) {
				t.Errorf("torn %v", got)
			}

			for round := range 2 { // the second round must not find further damage
				var log eventLog
				s := mustOpen(t, mem, &spool.Options{OnEvent: log.add})
				got := drain(t, s, false)
				if !slices.Equal(got, want) {
					t.Fatalf("round %d: records %v, want %v", round, got, want)
				}
				mustBalance(t, s)
				st := s.Stats()
				if lostLater := st.Recovered - uint64(len(want)); st.Corrupt != lostLater || c.atOpen && round == 0 && lostLater != 0 {
					t.Errorf("round %d: recovered %d, corrupt %d, read %d", round, st.Recovered, st.Corrupt, len(want))
				}
				es := log.ofKind(t, s, "corrupt")
				setAside := len(s.queue.damagedFiles) > 0 // Open sets a file aside if none of it is usable
				switch {
				case c.cause == nil || round == 1 && c.atOpen && setAside:
					if len(es) != 0 {
						t.Errorf("round %d: events %v", round, es)
					}
				case len(es) != 1 || !errors.Is(es[0].Err, c.cause) || !isCorrupt(es[0].Err):
					if !(round == 1 && !c.atOpen && setAside) {
						t.Errorf("round %d: events %v, want %v", round, es, c.cause)
					}
				default:
					var ce *spool.CorruptError
					if !errors.As(es[0].Err, &ce) || ce.Segment != seg(c.in) || ce.Records != lost || es[0].Count != lost {
						t.Errorf("round %d: %+v, want %d records", round, ce, lost)
					}
				}
				mem.ReleaseLocks()
			}
			s := mustOpen(t, mem, nil)
			mustAppend(t, s, 500, 10) // batches can still be appended
			want = append(want, 500, 501, 502, 503, 504, 505, 506, 507, 508, 509)
			if got := drain(t, s, true); !slices.Equal(got, want) {
				t.Fatalf("with more appended: records %v, want %v", got, want)
			}
			mustBalance(t, s)
			if st := s.Stats(); st.AsideFiles != len(c.aside) {
				t.Errorf("%d files set aside, want %d", st.AsideFiles, len(c.aside))
			}
			mustClose(t, s)
			if got := names(t, mem); !slices.Equal(got, append(c.aside, lockName, cursorName)) {
				t.Errorf("left: %v", got)
			}
		})
	}
}

// Damage found while the spool is open has the same effects as damage found by Open.
func TestDamageWhileOpen(t *testing.T) {
	mem := vfs.NewMem()
	var log eventLog
	s := mustOpen(t, mem, &spool.Options{OnEvent: log.add})
	for i := range 4 {
		mustAppend(t, s, i*10, 10)
	}
	offs := frameOffsets(t, mem, segmentName(1))
	f, err := mem.OpenFile(testDir+"/"+segmentName(1), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1, 2, 3}, offs[2]+100); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, s, false); len(got) != 20 {
		t.Fatalf("records %v", got)
	}
	mustBalance(t, s)
	mustAppend(t, s, 100, 10) // the batch goes into the next segment
	if got := drain(t, s, false); len(got) != 10 || got[0] != 100 {
		t.Fatalf("records %v", got)
	}
	s.Rewind()
	if got := drain(t, s, true); len(got) != 30 {
		t.Fatalf("records %v", got)
	}
	mustBalance(t, s)
	if st := s.Stats(); st.Corrupt != 20 || st.AsideFiles != 1 {
		t.Errorf("stats %+v", st)
	}
	if es := log.ofKind(t, s, "corrupt"); len(es) != 1 || es[0].Count != 20 {
		t.Errorf("events %v", es)
	}
	mustClose(t, s)
}

// A deleted segment is reported, and the other segments are delivered.
func TestMissingSegmentIsReported(t *testing.T) {
	for _, open := range []bool{true, false} {
		mem := threeSegments(t)
		var log eventLog
		o := &spool.Options{OnEvent: log.add}
		if !open {
			if err := mem.Remove(testDir + "/" + segmentName(2)); err != nil {
				t.Fatal(err)
			}
		}
		s := mustOpen(t, mem, o)
		if open {
			if err := mem.Remove(testDir + "/" + segmentName(2)); err != nil {
				t.Fatal(err)
			}
		}
		got := drain(t, s, true)
		if len(got) != 80 || got[40] != 80 {
			t.Errorf("records %v", got)
		}
		mustBalance(t, s)
		es := log.ofKind(t, s, "corrupt")
		if open && (len(es) != 1 || es[0].Count != 40 || !errors.Is(es[0].Err, errMissing)) || !open && len(es) != 0 {
			t.Errorf("events %v", es)
		}
		mustClose(t, s)
	}
}

// Without a valid cursor all stored batches are delivered again.
func TestDamagedCursorRepeatsAll(t *testing.T) {
	for _, c := range []struct {
		name   string
		break_ func(mem *vfs.Mem)
		events int
	}{
		{"deleted", func(mem *vfs.Mem) { _ = mem.Remove(testDir + "/" + cursorName) }, 0},
		{"garbage", func(mem *vfs.Mem) { setContent(t, mem, cursorName, make([]byte, 100)); flip(t, mem, cursorName, 30) }, 1},
		{"empty", func(mem *vfs.Mem) { setContent(t, mem, cursorName, nil) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := threeSegments(t)
			s := mustOpen(t, mem, nil)
			settle(t, s, 6)
			mem.ReleaseLocks()
			c.break_(mem)
			var log eventLog
			s = mustOpen(t, mem, &spool.Options{OnEvent: log.add})
			if err := consecutive(drain(t, s, true), 40); err != nil { // segment 1 is deleted now
				t.Error(err)
			}
			if es := log.ofKind(t, s, "corrupt"); len(es) != c.events {
				t.Errorf("events %v", es)
			}
			mustBalance(t, s)
			mustClose(t, s)
		})
	}
}

// With one damaged slot of the cursor no batch is lost, but some are delivered twice.
func TestOneCursorSlotIsEnough(t *testing.T) {
	mem := threeSegments(t)
	s := mustOpen(t, mem, nil)
	settle(t, s, 3)
	mem.ReleaseLocks()
	newest := int64(s.reader.cursor.state.gen%2) * cursorStride
	flip(t, mem, cursorName, newest+20)
	s = mustOpen(t, mem, nil)
	if err := consecutive(drain(t, s, false), 20); err != nil {
		t.Error(err)
	}
	mustClose(t, s)
}

// A failed read is repeated. If an offset remains unreadable, it counts as damage, and later
// batches are delivered.
func TestUnreadablePlaceCountsAsDamaged(t *testing.T) {
	mem := threeSegments(t)
	failing := 0
	fs := vfs.NewFaulty(mem, nil)
	s := mustOpen(t, fs, nil)
	fs.SetHook(func(c vfs.Call) (int, error) {
		if c.Op == vfs.OpRead && failing > 0 && strings.HasSuffix(c.Name, segmentName(1)) {
			failing--
			return 0, syscall.EIO
		}
		return 0, nil
	})
	failing = 2
	for range 2 {
		if _, _, err := s.Next(); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
	}
	b, _, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	if ns, err := numbers(b, nil); err != nil || ns[0] != 0 {
		t.Fatal(ns, err)
	}
	failing = 1 << 30
	for range giveUpAfter - 1 {
		if _, _, err := s.Next(); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
	}
	if got := drain(t, s, false); len(got) != 80 || got[0] != 40 {
		t.Errorf("records %v", got)
	}
	mustBalance(t, s)
	if st := s.Stats(); st.Corrupt != 30 {
		t.Errorf("stats %+v", st)
	}
	failing = 0
	mustClose(t, s)

	// A file that cannot be opened because no descriptors are left does not count as damaged.
	fs = vfs.NewFaulty(mem, nil)
	s = mustOpen(t, fs, nil)
	fs.SetHook(vfs.FailOn(syscall.EMFILE, vfs.OpOpen))
	for range 2 * giveUpAfter {
		if _, _, err := s.Next(); !errors.Is(err, syscall.EMFILE) {
			t.Fatal(err)
		}
	}
	fs.SetHook(nil)
	if got := drain(t, s, false); len(got) != 120 {
		t.Errorf("%d records", len(got))
	}
	mustClose(t, s)
}

// The number of damaged files kept is limited.
func TestOldestDamagedFilesAreDeleted(t *testing.T) {
	mem := vfs.NewMem()
	for i := range keepDamaged + 5 {
		setContent(t, mem, segmentName(uint64(i+1)), []byte(strings.Repeat("garbage ", 20)))
	}
	s := mustOpen(t, mem, nil)
	if st := s.Stats(); st.AsideFiles != keepDamaged || st.ParkedBytes != keepDamaged*160 {
		t.Errorf("stats %+v", st)
	}
	if seq := mustAppend(t, s, 0, 1); seq != 1 {
		t.Errorf("number %d", seq)
	}
	if got := names(t, mem); !slices.Contains(got, segmentName(keepDamaged+6)) || len(got) != keepDamaged+3 {
		t.Errorf("files %v", got)
	}
	mustClose(t, s)
}

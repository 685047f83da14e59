package diskqueue

import (
	"io"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// onlyForm returns a function for Options.Accepts that accepts only the records of codec c.
func onlyForm(c testCodec) func(string, uint32) bool {
	return func(contentType string, schema uint32) bool {
		return contentType == c.ContentType() && schema == c.SchemaVersion()
	}
}

// mixed writes six batches of 10 records to a spool. One in three batches has form B.
func mixed(t *testing.T, mem *vfs.Mem) {
	t.Helper()
	s := mustOpen(t, mem, nil)
	for i := range 6 {
		form := formA
		if i%3 == 1 {
			form = formB
		}
		if _, err := s.Append(numbered(i*10, 10, nil, form)); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)
}

// firstRecords returns the number of the first record of each batch returned by s, and the number
// of the last batch.
func firstRecords(t *testing.T, s *Spool) (out []int, last uint64) {
	t.Helper()
	for seq, b := range each(t, s) {
		ns, err := numbers(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, last = append(out, ns[0]), seq
	}
	return out, last
}

// mustHand checks, by their first records, which batches s returns, and acknowledges them.
func mustHand(t *testing.T, s *Spool, want ...int) {
	t.Helper()
	got, last := firstRecords(t, s)
	if !slices.Equal(got, want) {
		t.Fatalf("batches that begin with %d, want %d", got, want)
	}
	if last > 0 {
		if err := s.Ack(last); err != nil {
			t.Fatal(err)
		}
	}
}

// Records whose content type or schema is not accepted stay on disk, are reported once, and do not
// delay other records. A later process that accepts these records delivers them.
func TestParkedRecordsWaitForTheirForm(t *testing.T) {
	mem := vfs.NewMem()
	mixed(t, mem)
	var log eventLog
	o := &spool.Options{Accepts: onlyForm(formA), OnEvent: log.add}
	for range 2 {
		s := mustOpen(t, mem, o)
		if st := s.Stats(); st.Parked != 20 || st.ParkedFiles != 2 || st.Records != st.Recovered || st.Recovered < 20 {
			t.Errorf("%+v", st)
		}
		got, last := firstRecords(t, s)
		if last > 0 {
			if want := []int{0, 20, 30, 50}; !slices.Equal(got, want) {
				t.Errorf("batches that begin with %d, want %d", got, want)
			}
			if err := s.Ack(last); err != nil {
				t.Fatal(err)
			}
		}
		if a := s.Account(); a.Pending.Spill != 20 || a.Check() != nil {
			t.Errorf("%s", a)
		}
		if es := log.ofKind(t, s, "parked"); len(es) != 1 || es[0].Count != 20 || !strings.Contains(es[0].Err.Error(), `"test/b", version 7`) {
			t.Errorf("events %v", es)
		}
		log = eventLog{}
		mustClose(t, s)
	}
	l, err := inspect(mem, testDir, true)
	if err != nil || l.Pending != 20 || l.Damaged != 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	for _, f := range l.Files {
		if f.Parked != (f.ContentType == "test/b") || !IsFile(f.Name) {
			t.Errorf("%+v", f)
		}
	}
	s := mustOpen(t, mem, &spool.Options{Accepts: onlyForm(formB)})
	if _, err := s.Append(numbered(60, 10, nil, formB)); err != nil {
		t.Fatal(err)
	}
	mustHand(t, s, 10, 40, 60)
	mustClose(t, s)
	s = mustOpen(t, mem, nil)
	if st := s.Stats(); st.Recovered != 0 || st.Segments != 0 {
		t.Errorf("after all is acknowledged: %+v", st)
	}
	mustClose(t, s)
}

// If a segment is partly acknowledged before it is parked or after it is unparked, each later
// process continues after the acknowledged part.
func TestParkedInPart(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	for i := range 5 {
		if _, err := s.Append(numbered(i*10, 10, nil, formB)); err != nil {
			t.Fatal(err)
		}
	}
	take := func(s *Spool, want int) {
		t.Helper()
		b, seq, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ns, err := numbers(b, nil); err != nil || ns[0] != want {
			t.Fatalf("batch of %d, want %d: %v", ns, want, err)
		}
		if err := s.Ack(seq); err != nil {
			t.Fatal(err)
		}
	}
	take(s, 0)
	mustClose(t, s)
	for i := 1; i < 5; i++ {
		s = mustOpen(t, mem, &spool.Options{Accepts: onlyForm(formA)})
		if _, _, err := s.Next(); err != io.EOF {
			t.Fatal(err)
		}
		if st := s.Stats(); st.Parked != uint64(50-10*i) {
			t.Fatalf("%+v", st)
		}
		mustClose(t, s)
		s = mustOpen(t, mem, nil)
		take(s, i*10)
		mem = mem.CrashClone(rand.New(rand.NewSource(1)), 1)
	}
	s = mustOpen(t, mem, nil)
	mustHand(t, s)
	mustClose(t, s)
}

// If a parked segment is damaged, the batches before the damage are delivered. After that, the
// damage is reported and the file is set aside.
func TestParkedDamaged(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	for i := range 3 {
		if _, err := s.Append(numbered(i*10, 10, nil, formB)); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)
	name := segmentName(1)
	p := content(t, mem, name)
	p[frameOffsets(t, mem, name)[1]+frameHeaderBytes+40] ^= 1
	setContent(t, mem, name, p)
	s = mustOpen(t, mem, &spool.Options{Accepts: onlyForm(formA)})
	if st := s.Stats(); st.Parked != 10 || st.Damages != 1 {
		t.Fatalf("%+v", st)
	}
	mustClose(t, s)
	if l, err := inspect(mem, testDir, true); err != nil || l.Damaged != 1 || l.Pending != 10 {
		t.Fatalf("%+v, %v", l, err)
	}
	s = mustOpen(t, mem, nil)
	mustHand(t, s, 0)
	if st := s.Stats(); st.AsideFiles != 1 || st.Segments != 0 {
		t.Errorf("%+v", st)
	}
	mustClose(t, s)
}

// An older version ignores parked files and uses their numbers again. The files stay parked until
// the batches of the older version are acknowledged.
func TestParkedNumbersUsedByAnOlderVersion(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	if _, err := s.Append(numbered(0, 10, nil, formB)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	mustClose(t, mustOpen(t, mem, &spool.Options{Accepts: onlyForm(formA)}))
	names, err := mem.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, parkedSuffix) })
	old := vfs.NewMem()
	s = mustOpen(t, old, nil)
	if _, err := s.Append(numbered(100, 10, nil, formA)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	setContent(t, old, names[i], content(t, mem, names[i]))
	s = mustOpen(t, old, nil)
	mustHand(t, s, 100)
	mustClose(t, s)
	s = mustOpen(t, old, nil)
	mustHand(t, s, 0)
	mustClose(t, s)
}

// The quota drops parked segments by age, like other segments.
func TestParkedQuota(t *testing.T) {
	mem := vfs.NewMem()
	mixed(t, mem)
	s := mustOpen(t, mem, &spool.Options{MaxBytes: 32 << 10, SegmentBytes: 4 << 10, Accepts: onlyForm(formA)})
	for range 2 { // reading passes a parked segment
		if _, _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		if _, err := s.Append(numbered(100+10*i, 10, nil, formA)); err != nil {
			t.Fatal(err)
		}
	}
	st := s.Stats()
	if st.Parked != 0 || st.DroppedQuota < 20 || st.Bytes > 32<<10 || s.Account().Check() != nil {
		t.Errorf("%+v", st)
	}
	mustClose(t, s)
}

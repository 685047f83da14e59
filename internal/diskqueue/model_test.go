package diskqueue

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"slices"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// modelBatch is a batch in the model.
type modelBatch struct {
	seq         uint64
	ns          []int
	interrupted bool // the process died during its Append

	form    string
	settled bool // this process has called Ack for it
	sure    bool // that Ack returned nil
}

// model performs random operations on a spool and knows which batches the spool must return. The
// file system fails at random. The process dies and restarts at random.
type model struct {
	t      *testing.T
	r      *rand.Rand
	mem    *vfs.Mem
	faults float64 // probability that an operation of the file system fails
	reads  bool    // reads and renames fail, too
	quota  int64
	found  int64 // size of the spool at the start of the process; above the quota if deletions have failed
	every  bool  // check the files after each step
	forms  int   // one in this many batches has the other form

	fs   *vfs.Faulty
	s    *Spool
	dict *testDict

	all     []modelBatch // batches that may be unacknowledged, oldest first
	read    int          // number of batches of the field all that were handed out
	acked   int          // number of batches of the field all that this process has acknowledged
	parked  []modelBatch // batches in forms that this process does not accept, oldest first
	next    int          // number of the next record
	dropped uint64       // number of records that were removed from the field all and that DroppedQuota must include
	killIn  int          // number of operations until the process dies; 0: never

	// leftovers (by number) and phantoms are batches that may or may not exist after a restart, for
	// one of these reasons:
	// - A process dropped them and died before it deleted the file.
	// - Their Append failed, their frame could not be truncated, and the batch that got their
	// number is gone or never existed.
	// - They could not be read.
	leftovers map[uint64][]int
	phantoms  []modelBatch
	corrupt   uint64 // number of unreadable records that were removed from the field all

	begun []int        // first record of each batch for which Append was called
	acks  map[int]bool // first records of the batches for which Ack was called

	joined int // number of batches that NextUpTo added to another batch
}

// checkHeld compares Held with some batches. Held must return each ticket of a batch that was
// found. It must not return tickets of another batch unless that batch was acknowledged.
func (m *model) checkHeld(s *Spool, found []modelBatch) {
	there := map[int][]int{}
	for _, b := range found {
		there[b.ns[0]] = b.ns
	}
	check := func(first int) {
		end := m.next // end of the records in the batch that begins with record first
		if i, _ := slices.BinarySearch(m.begun, first+1); i < len(m.begun) {
			end = m.begun[i]
		}
		var got []int
		for _, t := range s.Held(sharedOrigin(first), 2*uint64(first), 2*uint64(end)) {
			for n := t.First; n <= t.Last; n++ {
				got = append(got, int(n-1)/2)
			}
		}
		slices.Sort(got)
		if want := there[first]; !slices.Equal(got, want) && !m.acks[first] {
			m.t.Fatalf("of the batch from record %d the spool holds %v, want %v", first, got, want)
		}
	}
	for range min(len(found), 4) {
		check(found[m.r.Intn(len(found))].ns[0])
	}
	for range min(len(m.begun), 4) {
		check(m.begun[m.r.Intn(len(m.begun))])
	}
}

var errInjected = errors.New("injected")

// hook decides whether an operation of the file system fails.
func (m *model) hook(c vfs.Call) (int, error) {
	if m.killIn > 0 {
		if m.killIn--; m.killIn == 0 {
			return m.r.Intn(c.Len + 1), vfs.ErrKilled
		}
	}
	switch c.Op {
	case vfs.OpWrite:
		if m.r.Float64() < m.faults {
			return m.r.Intn(c.Len + 1), fmt.Errorf("%w: %w", errInjected, syscall.ENOSPC)
		}
	case vfs.OpCreate, vfs.OpTruncate, vfs.OpRemove, vfs.OpSync, vfs.OpSyncDir, vfs.OpOpen:
		if m.r.Float64() < m.faults {
			return 0, fmt.Errorf("%w: %w", errInjected, syscall.EIO)
		}
	case vfs.OpRead, vfs.OpRename:
		if m.reads && m.r.Float64() < m.faults {
			return 0, fmt.Errorf("%w: %w", errInjected, syscall.EIO)
		}
	}
	return 0, nil
}

func (m *model) options() *spool.Options {
	o := &spool.Options{SegmentBytes: 4<<10 + m.r.Int63n(16<<10), Streams: m.dict, Codec: testCodecs, MaxBytes: m.quota}
	if m.r.Intn(4) == 0 {
		o.Sync = syncAlways
	}
	o.Accepts = m.accepts()
	return o
}

// accepts returns a random function for Options.Accepts.
func (m *model) accepts() func(string, uint32) bool {
	switch m.r.Intn(4) {
	case 0:
		return nil
	case 1:
		return func(contentType string, _ uint32) bool { return contentType == formB.ContentType() }
	}
	return func(contentType string, _ uint32) bool { return contentType == formA.ContentType() }
}

// start opens the spool, as a new process does, and compares its content with the model.
func (m *model) start() {
	m.dict = newTestDict(uint32(m.r.Intn(100)))
	m.fs = vfs.NewFaulty(m.mem, nil)
	o := m.options()
	s, err := open(m.fs, testDir, o)
	if err != nil {
		m.t.Fatal(err)
	}
	m.s = s
	var found []modelBatch
	for e, err := range scan(m.mem, testDir, &spool.Options{Streams: m.dict}) {
		if err != nil && m.reads && isCorrupt(err) {
			continue // the records that were set aside are missing
		}
		if err != nil {
			m.t.Fatal("damage after the death of a process: ", err)
		}
		if e.Acked {
			continue
		}
		ns, err := numbers(e.Batch, m.dict)
		if err != nil {
			m.t.Fatal(err)
		}
		found = append(found, modelBatch{seq: e.Seq, ns: ns, form: e.Batch.Codec.ContentType()})
	}
	m.compare(found)
	m.all, m.parked, m.read, m.acked = nil, nil, 0, 0
	for _, b := range found {
		if o.Accepts == nil || o.Accepts(b.form, 0) {
			m.all = append(m.all, b)
		} else {
			m.parked = append(m.parked, b)
		}
	}
	m.recovered(s, found)
	m.checkHeld(s, found)
	m.dropped, m.corrupt = 0, 0
	m.found = s.Stats().Bytes
	m.fs.SetHook(m.hook)
}

// recovered checks that the account of s has exactly the records in found.
func (m *model) recovered(s *Spool, found []modelBatch) {
	records := uint64(0)
	for _, b := range found {
		records += uint64(len(b.ns))
	}
	parked := uint64(0)
	for _, b := range m.parked {
		parked += uint64(len(b.ns))
	}
	if st := s.Stats(); st.Recovered != records || st.Records != records || s == m.s && st.Parked != parked {
		m.t.Fatalf("%d records on disk, %d of them parked, stats %+v", records, parked, st)
	}
}

// checkAfterKill checks which batches a new process would find if this process died now. Sometimes
// it first makes another process die during its recovery.
func (m *model) checkAfterKill() {
	c := m.mem.CrashClone(m.r, 1)
	dict := newTestDict(uint32(m.r.Intn(100)))
	o := &spool.Options{SegmentBytes: 4<<10 + m.r.Int63n(16<<10), Streams: dict, Codec: testCodecs, MaxBytes: m.quota}
	if m.r.Intn(3) == 0 {
		left := 1 + m.r.Intn(30)
		dying := vfs.NewFaulty(c, func(call vfs.Call) (int, error) {
			if left--; left == 0 {
				return m.r.Intn(call.Len + 1), vfs.ErrKilled
			}
			return 0, nil
		})
		its := *o
		its.Accepts = m.accepts()
		s, err := open(dying, testDir, &its)
		dying.Kill()
		if err == nil {
			_ = s.Close()
		}
	}
	s := mustOpen(m.t, c, o)
	var found []modelBatch
	for seq, b := range each(m.t, s) {
		ns, err := numbers(b, dict)
		if err != nil {
			m.t.Fatal(err)
		}
		found = append(found, modelBatch{seq: seq, ns: ns})
	}
	m.compare(found)
	m.recovered(s, found)
	m.checkHeld(s, found)
	mustBalance(m.t, s)
	mustClose(m.t, s)
}

// compare checks the batches that a new process finds. They must include, in order, each batch
// whose Append returned and whose Ack did not. The only other batches allowed are those whose
// Append or Ack was interrupted.
func (m *model) compare(found []modelBatch) {
	k := 0
	mayExist := func(b modelBatch) bool {
		return slices.Equal(m.leftovers[b.seq], b.ns) || slices.ContainsFunc(m.phantoms, func(p modelBatch) bool {
			return b.seq == p.seq && slices.Equal(b.ns, p.ns)
		})
	}
	leftover := func(limit uint64) {
		for k < len(found) && found[k].seq < limit && mayExist(found[k]) {
			k++
		}
	}
	all := slices.Concat(m.all, m.parked)
	slices.SortStableFunc(all, func(a, b modelBatch) int { return cmp.Compare(a.seq, b.seq) })
	for _, b := range all {
		leftover(b.seq)
		if k < len(found) && found[k].seq == b.seq && slices.Equal(found[k].ns, b.ns) {
			if b.sure {
				m.t.Fatalf("batch %d was returned although its Ack had returned", b.seq)
			}
			k++
			continue
		}
		if b.settled || b.interrupted {
			continue
		}
		m.t.Fatalf("batch %d (records %d…) is lost; found %d of %d batches", b.seq, b.ns[0], k, len(all))
	}
	leftover(1 << 62)
	if k != len(found) {
		m.t.Fatalf("batch %d (records %v…) was not appended or is out of order", found[k].seq, found[k].ns[0])
	}
}

// died reports whether err means that the process is dead. If so, it starts the next process.
func (m *model) died(err error) bool {
	if !errors.Is(err, vfs.ErrKilled) {
		return false
	}
	m.killIn = 0
	m.start()
	return true
}

func (m *model) append() {
	n := 1 + m.r.Intn(30)
	form := batch.Codec(formA)
	if m.r.Intn(m.forms) == 0 {
		form = formB
	}
	b := numbered(m.next, n, m.dict, form)
	b.Origin = sharedOrigin(m.next)
	ns := make([]int, n)
	for i := range ns {
		ns[i] = m.next + i
	}
	m.begun = append(m.begun, m.next)
	m.next += n
	seq, err := m.s.Append(b)
	if err == nil {
		m.all = append(m.all, modelBatch{seq: seq, ns: ns})
		m.drops()
		return
	}
	m.drops()
	if errors.Is(err, vfs.ErrKilled) {
		m.s.mu.Lock()
		seq = m.s.appender.next.seq
		m.s.mu.Unlock()
		m.all = append(m.all, modelBatch{seq: seq, ns: ns, interrupted: true})
	} else if errors.Is(err, errInjected) {
		m.s.mu.Lock()
		m.phantoms = append(m.phantoms, modelBatch{seq: m.s.appender.next.seq, ns: ns})
		m.s.mu.Unlock()
	} else if !errors.Is(err, errFull) {
		m.t.Fatal(err)
	}
	m.died(err)
}

// drops removes from the model the records that the spool has dropped for the quota, according to
// its statistics and segments.
func (m *model) drops() {
	n := m.s.Stats().DroppedQuota - m.dropped
	if n == 0 {
		return
	}
	m.dropped += n
	keep := m.all[:0]
	m.s.queue.mu.Lock()
	segs := slices.Clone(m.s.queue.segs)
	m.s.queue.mu.Unlock()
	isThere := func(b modelBatch) bool {
		return slices.ContainsFunc(segs, func(g *segment) bool { return g.first.seq <= b.seq && b.seq < g.end.seq })
	}
	m.parked = slices.DeleteFunc(m.parked, func(b modelBatch) bool {
		gone := !isThere(b)
		if gone {
			n -= uint64(len(b.ns))
			m.leftovers[b.seq] = b.ns
		}
		return gone
	})
	read, acked := m.read, m.acked
	for i, b := range m.all {
		switch {
		case isThere(b) || i < m.acked:
			keep = append(keep, b)
		case i < m.read:
			m.t.Fatalf("batch %d was dropped while handed out", b.seq)
		default:
			n -= uint64(len(b.ns))
			m.leftovers[b.seq] = b.ns
		}
	}
	m.all, m.read, m.acked = keep, read, acked
	if n != 0 {
		m.t.Fatalf("the count of dropped records is off by %d", int64(n))
	}
}

func (m *model) next1() {
	bytes, records := 0, 0
	if m.r.Intn(2) == 0 {
		bytes, records = m.r.Intn(16<<10), m.r.Intn(150)
	}
	b, seq, err := m.s.NextUpTo(bytes, records)
	if err != nil {
		m.unreadable(1 << 62) // also counts batches that a process could not read when it died
	}
	switch {
	case m.died(err):
	case errors.Is(err, io.EOF):
		if m.read != len(m.all) {
			m.t.Fatalf("no more batches, but %d is missing", m.all[m.read].seq)
		}
	case err != nil:
		if !errors.Is(err, errInjected) {
			m.t.Fatal(err)
		}
	default:
		m.unreadable(seq)
		if m.read == len(m.all) {
			m.t.Fatalf("batch %d was not appended", seq)
		}
		ns, err := numbers(b, m.dict)
		if err != nil {
			m.t.Fatal(err)
		}
		var want []int
		first := m.read
		for m.read < len(m.all) && m.all[m.read].seq <= seq {
			want = append(want, m.all[m.read].ns...)
			if n := m.all[m.read].ns[0]; sharedOrigin(n) != b.Origin {
				m.t.Fatalf("the batch from record %d is in one of origin %q", n, b.Origin[:])
			}
			m.read++
		}
		if m.all[m.read-1].seq != seq || !slices.Equal(ns, want) {
			m.t.Fatalf("batch %d: records %v, want batch %d: %v", seq, ns, m.all[m.read-1].seq, want)
		}
		if m.read > first+1 && (b.Bytes() > bytes || b.Len() > records) {
			m.t.Fatalf("%d batches in one of %d bytes and %d records, want %d and %d at most", m.read-first, b.Bytes(), b.Len(), bytes, records)
		}
		m.joined += m.read - first - 1
	}
}

// unreadable removes from the model the batches before number seq that Next has skipped, according
// to the statistics of the spool.
func (m *model) unreadable(seq uint64) {
	n := m.s.Stats().Corrupt - m.corrupt
	m.corrupt += n
	k := m.read
	for ; k < len(m.all) && n > 0 && m.all[k].seq < seq; k++ {
		n -= min(n, uint64(len(m.all[k].ns)))
		m.leftovers[m.all[k].seq] = m.all[k].ns
	}
	m.all = slices.Delete(m.all, m.read, k)
	if n != 0 {
		m.t.Fatalf("the count of unreadable records is off by %d", n)
	}
}

func (m *model) ack() {
	if m.acked == m.read {
		return
	}
	k := m.acked + m.r.Intn(m.read-m.acked)
	seq := m.all[k].seq
	for _, b := range m.all[m.acked : k+1] {
		m.acks[b.ns[0]] = true
	}
	err := m.s.Ack(seq)
	m.acked = k + 1
	for i := range m.all[:m.acked] {
		m.all[i].settled, m.all[i].sure = true, m.all[i].sure || err == nil
	}
	if err != nil && !errors.Is(err, errInjected) && !errors.Is(err, vfs.ErrKilled) {
		m.t.Fatal(err)
	}
	m.died(err)
}

func (m *model) step() {
	switch p := m.r.Intn(100); {
	case p < 40:
		m.append()
	case p < 70:
		m.next1()
	case p < 88:
		m.ack()
	case p < 91:
		m.s.Rewind()
		m.read = m.acked
	case p < 93:
		m.died(m.s.Sync())
	case p < 94:
		m.close()
		m.start()
	case p < 97:
		m.killIn = 1 + m.r.Intn(20)
	case p < 98:
		m.fs.Kill()
		m.killIn = 0
		m.start()
	default:
		if err := m.s.Account().Check(); err != nil {
			m.t.Fatal(err)
		}
		if st := m.s.Stats(); m.quota != 0 && st.Bytes > max(m.quota, m.found) {
			m.t.Fatalf("%d bytes on disk, the quota is %d", st.Bytes, m.quota)
		}
	}
}

// close closes the spool. The process may have died earlier, in an operation whose error is
// ignored, such as the removal of a settled segment.
func (m *model) close() {
	m.fs.SetHook(nil)
	m.killIn = 0
	err := m.s.Close()
	if m.died(err) {
		m.fs.SetHook(nil)
		err = m.s.Close()
	}
	if err != nil && !(errors.Is(err, errNotSynced) && errors.Is(err, errInjected)) { // error of an earlier sync
		m.t.Fatal(err)
	}
}

// Random appends, reads, acknowledgements, failures of the file system, deaths and restarts are
// compared with a model of the batches that must be returned.
func TestModel(t *testing.T) {
	rounds := testkit.Rounds(t, 1, 40)
	joined, want := 0, 0
	for _, c := range []struct {
		name   string
		faults float64
		reads  bool
		quota  int64
		every  bool
		forms  int
	}{
		{"quiet", 0, false, 0, false, 20}, {"faults", 0.05, false, 0, false, 20}, {"quota", 0, false, 64 << 10, false, 20},
		{"forms", 0.02, false, 0, false, 3}, {"forms reads", 0.05, true, 128 << 10, false, 5},
		{"each step", 0.05, false, 0, true, 10}, {"each step quota", 0.05, false, 64 << 10, true, 10}, {"each step reads", 0.1, true, 64 << 10, true, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, steps := testSeed(t), 250
			if c.every {
				steps = 100
			}
			for range rounds {
				m := &model{t: t, leftovers: map[uint64][]int{}, acks: map[int]bool{}, r: r, mem: vfs.NewMem(), faults: c.faults, reads: c.reads, quota: c.quota, every: c.every, forms: c.forms}
				m.start()
				for range steps {
					if m.step(); m.every {
						m.checkAfterKill()
					}
				}
				mustBalance(t, m.s)
				m.close()
				if m.next < steps {
					t.Errorf("only %d records", m.next)
				}
				joined, want = joined+m.joined, want+1 // requires a tenth of the usual number
			}
		})
	}
	if joined < want && !t.Failed() {
		t.Errorf("only %d batches were joined to another one", joined)
	}
}

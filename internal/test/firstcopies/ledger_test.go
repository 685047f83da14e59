package firstcopies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/forebay-log/forebay/internal/ordercheck"
)

// A ledger keeps the calls that wrote records, and the copies that arrived at servers. Any
// goroutine may use it.
type ledger struct {
	mu    sync.Mutex
	clock int
	keys  map[string]*keyRecords

	copies   int
	failures int
	defects  []defect
}

// keyRecords contains all records of one key, in the order in which their calls began.
type keyRecords struct {
	key     string
	foreign bool // another process makes the calls, one at a time
	calls   []call
	arrived []int // numbers of the records in the order in which their first copies arrived
	order   ordercheck.Order[int]
	late    int // number of first copies that arrived out of order
}

// A call is one logging call and the outcome of its record. began and ended are ticks of the
// ledger's clock. ended is 0 if the call has not returned.
type call struct {
	began, ended int
	accepted     bool // the record was accepted and so must arrive
	excused      bool // the server refuses or delays the record, so the checks ignore it
	copies       int
}

// A kind is a kind of defect found by the ledger.
type kind string

const (
	disorder kind = "disorder" // a first copy arrived after the first copy of a later call
	missing  kind = "missing"  // a record never arrived
	excess   kind = "excess"   // more repeated copies arrived than the failures explain
	other    kind = "other"    // damaged or unknown records, wrong accounts
)

type defect struct {
	kind kind
	text string
}

func newLedger() *ledger { return &ledger{keys: map[string]*keyRecords{}} }

func (l *ledger) recordsOf(key string) *keyRecords {
	if l.keys[key] == nil {
		l.keys[key] = &keyRecords{key: key}
	}
	return l.keys[key]
}

func (l *ledger) reportLocked(k kind, format string, args ...any) {
	l.defects = append(l.defects, defect{k, fmt.Sprintf(format, args...)})
}

// report adds a defect that the walk itself has found.
func (l *ledger) report(k kind, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reportLocked(k, format, args...)
}

// begin is called at the start of a call for key. It returns the number of the record.
func (l *ledger) begin(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.recordsOf(key)
	l.clock++
	k.calls = append(k.calls, call{began: l.clock})
	return len(k.calls) - 1
}

// ticks returns the time of the ledger's clock. It changes whenever a call begins or returns.
func (l *ledger) ticks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock
}

// end is called when the call for record n has returned. accepted reports whether the record was
// accepted.
func (l *ledger) end(key string, n int, accepted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.recordsOf(key).calls[n]
	l.clock++
	c.ended, c.accepted = l.clock, accepted
}

// excuse marks record n as excused: the server refuses or delays the record, so a missing or late
// copy is not a defect.
func (l *ledger) excuse(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.recordsOf(key)
	if k.foreign {
		k.reach(n)
	}
	if n < len(k.calls) {
		k.calls[n].excused = true
	}
}

// foreign marks key as foreign: another process makes the calls for key, one at a time.
func (l *ledger) foreign(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recordsOf(key).foreign = true
}

// returned is called when the calls for the records first to end-1 of a foreign key have returned.
func (l *ledger) returned(key string, first, end int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.recordsOf(key)
	k.reach(end - 1)
	for n := first; n < end; n++ {
		k.calls[n].accepted = true
	}
}

func (k *keyRecords) reach(n int) {
	for i := len(k.calls); i <= n; i++ {
		k.calls = append(k.calls, call{began: 2*i + 1, ended: 2*i + 2})
	}
}

// failed is called after a failure of a server. Each failure permits some records to arrive again.
func (l *ledger) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures++
}

// arrive is called when a copy of record n has arrived.
func (l *ledger) arrive(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[key]
	if k != nil && k.foreign {
		k.reach(n)
	}
	if k == nil || n < 0 || n >= len(k.calls) {
		l.reportLocked(other, "record %d of %q arrived, and nobody made it", n, key)
		return
	}
	l.copies++
	c := &k.calls[n]
	if c.copies++; c.copies > 1 {
		return
	}
	k.arrived = append(k.arrived, n)
	if c.excused {
		return
	}
	// A call that has not returned overlaps with all later calls.
	if before := k.order.Arrive(n, int64(c.began)); c.ended != 0 && before.Follows(int64(c.ended)) {
		if k.late++; k.late == 1 {
			l.reportLocked(disorder, "%s: record %d arrived after %d: %s", key, n, before.ID, k.recentRuns())
		}
	}
}

// arriveText is called when a copy with the given text has arrived. The text is a label (see
// [label]).
func (l *ledger) arriveText(text string) {
	key, n, err := readLabel(text)
	if err != nil {
		l.report(other, "%v", err)
		return
	}
	l.arrive(key, n)
}

// totals contains the numbers of records, copies and failures of one or more rounds.
type totals struct{ records, copies, failures int }

func (t *totals) add(l *ledger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.keys {
		t.records += len(k.calls)
	}
	t.copies += l.copies
	t.failures += l.failures
}

// recentRuns formats the most recent first copies as up to four ranges of consecutive numbers.
func (k *keyRecords) recentRuns() string {
	var runs []string
	from := 0
	for j := 1; j <= len(k.arrived); j++ {
		if j < len(k.arrived) && k.arrived[j] == k.arrived[j-1]+1 {
			continue
		}
		if a, b := k.arrived[from], k.arrived[j-1]; a == b {
			runs = append(runs, strconv.Itoa(a))
		} else {
			runs = append(runs, fmt.Sprintf("%d…%d", a, b))
		}
		from = j
	}
	if len(runs) > 4 {
		runs = append([]string{"…"}, runs[len(runs)-4:]...)
	}
	return strings.Join(runs, ", ")
}

// close checks, at the end of a round, that at most dropped records are missing, and that at most
// perFailure records arrived again for each failure. It returns all defects of the round.
func (l *ledger) close(dropped uint64, perFailure int) []defect {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost, first, total := 0, "", 0
	for _, key := range sortedKeys(l.keys) {
		k := l.keys[key]
		for n, c := range k.calls {
			if c.accepted && !c.excused && c.copies == 0 {
				if lost++; lost == 1 {
					first = fmt.Sprintf("%s: %d of %d", key, n, len(k.calls))
				}
			}
			if c.copies > 0 {
				total++
			}
		}
	}
	if uint64(lost) > dropped {
		l.reportLocked(missing, "%d records are missing, %d say they were dropped; the first is %s", lost, dropped, first)
	}
	if again := l.copies - total; again > l.failures*perFailure {
		l.reportLocked(excess, "%d repeated copies after %d failures, each of which explains at most %d", again, l.failures, perFailure)
	}
	return slices.Clone(l.defects)
}

// counts returns how many copies of each record arrived, by the beginning of its label.
func (l *ledger) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	copies := map[string]int{}
	for key, k := range l.keys {
		for n, c := range k.calls {
			if c.copies > 0 {
				copies[fmt.Sprintf("<%s/%d/", key, n)] = c.copies
			}
		}
	}
	return copies
}

// distinct returns the number of records that arrived at least once.
func (l *ledger) distinct() int { return len(l.counts()) }

// checkPrefix checks the records first to end-1. If one is missing, no later one of them may have
// arrived.
func (l *ledger) checkPrefix(key string, first, end int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.recordsOf(key)
	lost := -1
	for n := first; n < min(end, len(k.calls)); n++ {
		switch arrived := k.calls[n].copies > 0; {
		case !arrived && lost < 0:
			lost = n
		case arrived && lost >= 0:
			l.reportLocked(missing, "%s: record %d is lost, and %d is not", key, lost, n)
			return
		}
	}
}

// checkRepeated checks, for each record, the number of copies that have arrived since the snapshot
// before. want contains the expected numbers.
func (l *ledger) checkRepeated(before, want map[string]int) {
	for rec, n := range l.counts() {
		if n -= before[rec]; n != want[rec] {
			l.report(excess, "%s arrived %d times after the restart, want %d", rec, n, want[rec])
			return
		}
		delete(want, rec)
	}
	for rec := range want {
		l.report(missing, "%s was in the spool and did not come", rec)
		return
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

var padding = strings.Repeat("x", 1<<10)

// label returns a text that consists of key, n and pad bytes of padding.
func label(key string, n, pad int) string {
	return fmt.Sprintf("<%s/%d/%d>%s", key, n, pad, padding[:pad])
}

// readLabel parses a text that label has returned, and checks its padding. It must be fast, because
// a slow server would hide defects that depend on timing.
func readLabel(text string) (key string, n int, err error) {
	head, rest, ok := strings.Cut(text, ">")
	key, head, ok1 := strings.Cut(head, "/")
	number, pad, ok2 := strings.Cut(head, "/")
	key, ok3 := strings.CutPrefix(key, "<")
	n, err1 := strconv.Atoi(number)
	k, err2 := strconv.Atoi(pad)
	if !ok || !ok1 || !ok2 || !ok3 || err1 != nil || err2 != nil || n < 0 || k != len(rest) || k > len(padding) || rest != padding[:k] {
		return "", 0, fmt.Errorf("a damaged record: %.80q", text)
	}
	return key, n, nil
}

// The ledger reports records that are missing, out of order, repeated too often or unknown, and
// nothing else.
func TestLedgerFindsOnlyDefects(t *testing.T) {
	// Calls 0 to 5 are made one after another. Calls 6 and 7 overlap.
	tests := map[string]struct {
		arrived  []int
		failures int
		dropped  uint64
		want     map[kind]int
	}{
		"in order":                  {arrived: []int{0, 1, 2, 3, 4, 5, 6, 7}},
		"overlapping calls":         {arrived: []int{0, 1, 2, 3, 4, 5, 7, 6}},
		"again after a failure":     {arrived: []int{0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7}, failures: 1},
		"again without a failure":   {arrived: []int{0, 1, 2, 3, 3, 4, 5, 6, 7}, want: map[kind]int{excess: 1}},
		"too much for one failure":  {arrived: []int{0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7}, failures: 1, want: map[kind]int{excess: 1}},
		"a later one first":         {arrived: []int{0, 3, 1, 2, 3, 4, 5, 6, 7}, failures: 1, want: map[kind]int{disorder: 1}},
		"the order of later copies": {arrived: []int{0, 1, 2, 3, 3, 2, 1, 4, 5, 6, 7}, failures: 1},
		"one is missing":            {arrived: []int{0, 1, 3, 4, 5, 6, 7}, want: map[kind]int{missing: 1}},
		"one is dropped":            {arrived: []int{0, 1, 3, 4, 5, 6, 7}, dropped: 1},
		"nobody's":                  {arrived: []int{0, 1, 2, 3, 4, 5, 6, 7, 9}, want: map[kind]int{other: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			for range 6 {
				l.end("k", l.begin("k"), true)
			}
			l.begin("k")
			l.begin("k")
			l.end("k", 6, true)
			l.end("k", 7, true)
			for range tt.failures {
				l.failed()
			}
			for _, n := range tt.arrived {
				l.arriveText(label("k", n, n))
			}
			got := map[kind]int{}
			for _, f := range l.close(tt.dropped, 3) {
				got[f.kind]++
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("found %v, want %v: %v", got, tt.want, l.defects)
			}
		})
	}
}

// A missing or late record is no defect if it is excused.
func TestLedgerIgnoresExcusedRecords(t *testing.T) {
	l := newLedger()
	for range 4 {
		l.end("k", l.begin("k"), true)
	}
	l.excuse("k", 1)
	l.excuse("k", 3)
	for _, n := range []int{3, 0, 2, 1} {
		l.arrive("k", n)
	}
	if defects := l.close(0, 0); len(defects) > 0 {
		t.Error(defects)
	}
}

// Calls of another process are made one after another. If the process died during a call, the
// record of that call may or may not arrive.
func TestLedgerOrdersCallsOfOtherProcess(t *testing.T) {
	l := newLedger()
	l.foreign("k")
	for _, n := range []int{0, 1, 2, 4, 5} {
		l.arrive("k", n)
	}
	l.returned("k", 0, 3)
	l.returned("k", 4, 6)
	if defects := l.close(0, 0); len(defects) > 0 {
		t.Error(defects)
	}
	l.arrive("k", 3)
	l.returned("k", 6, 7)
	if defects := l.close(0, 0); len(defects) != 2 || defects[0].kind != disorder || defects[1].kind != missing {
		t.Error(defects)
	}
}

func TestReadLabelRejectsDamage(t *testing.T) {
	if key, n, err := readLabel(label("a", 17, 5)); key != "a" || n != 17 || err != nil {
		t.Error(key, n, err)
	}
	for _, bad := range []string{"", "<a/1/2>x", "<a/1/2>xxx", "<a/1/2>xy", "a/1/2>xx", "<a/-1/2>xx", "<a/1>", "<a/1/2"} {
		if _, _, err := readLabel(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

package firstcopies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A ledger notes the calls that made records and the copies that arrived. Callers
// and peers use it from any goroutine.
type ledger struct {
	mu    sync.Mutex
	clock int
	lines map[string]*line

	copies   int
	failures int
	falls    []fall
}

// A line is all records of one key, in the order in which their calls began.
type line struct {
	key     string
	foreign bool // another process makes the calls, one after the other
	calls   []call
	came    []int // first copies, as they arrived
	latest  int   // of came, the call that began last; -1: none
	late    int   // first copies out of order
}

// A call has the times at which it began and returned. A call that has not returned
// yet has ended 0.
type call struct {
	began, ended int
	taken        bool // the record must arrive
	excused      bool // the peer refuses the record, or delays it: it has no place in the order
	copies       int
}

// A kind says how a round fell.
type kind string

const (
	disorder kind = "disorder" // a first copy came after that of a later call
	missing  kind = "missing"  // a record never came
	excess   kind = "excess"   // more copies than one window for each failure
	other    kind = "other"    // damaged or unknown records, false accounts
)

type fall struct {
	kind kind
	text string
}

func newLedger() *ledger { return &ledger{lines: map[string]*line{}} }

func (l *ledger) line(key string) *line {
	if l.lines[key] == nil {
		l.lines[key] = &line{key: key, latest: -1}
	}
	return l.lines[key]
}

func (l *ledger) fallLocked(k kind, format string, args ...any) {
	l.falls = append(l.falls, fall{k, fmt.Sprintf(format, args...)})
}

// fell notes a fall that a walk has seen itself.
func (l *ledger) fell(k kind, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fallLocked(k, format, args...)
}

// begin notes that a call begins and returns the number of its record.
func (l *ledger) begin(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.line(key)
	l.clock++
	k.calls = append(k.calls, call{began: l.clock})
	return len(k.calls) - 1
}

// end notes that the call has returned, and whether the record was taken.
func (l *ledger) end(key string, n int, taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.line(key).calls[n]
	l.clock++
	c.ended, c.taken = l.clock, taken
}

// excuse takes a record out of the order, and out of those that must arrive.
func (l *ledger) excuse(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.line(key)
	if k.foreign {
		k.reach(n)
	}
	if n < len(k.calls) {
		k.calls[n].excused = true
	}
}

// foreign says that another process makes the calls of key, one after the other.
func (l *ledger) foreign(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line(key).foreign = true
}

// returned notes that the calls from..to-1 of a foreign key have returned.
func (l *ledger) returned(key string, from, to int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.line(key)
	k.reach(to - 1)
	for n := from; n < to; n++ {
		k.calls[n].taken = true
	}
}

func (k *line) reach(n int) {
	for i := len(k.calls); i <= n; i++ {
		k.calls = append(k.calls, call{began: 2*i + 1, ended: 2*i + 2})
	}
}

// failed notes that something happened after which records may come again.
func (l *ledger) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures++
}

// arrive notes one copy.
func (l *ledger) arrive(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.lines[key]
	if k != nil && k.foreign {
		k.reach(n)
	}
	if k == nil || n < 0 || n >= len(k.calls) {
		l.fallLocked(other, "record %d of %q arrived, and nobody made it", n, key)
		return
	}
	l.copies++
	c := &k.calls[n]
	if c.copies++; c.copies > 1 {
		return
	}
	k.came = append(k.came, n)
	switch {
	case c.excused:
	case k.latest < 0 || c.began > k.calls[k.latest].began:
		k.latest = n
		// The order is broken if this call returned before one began whose record was here
		// earlier. A call that has not returned yet did not.
	case c.ended != 0 && c.ended < k.calls[k.latest].began:
		if k.late++; k.late == 1 {
			l.fallLocked(disorder, "%s: record %d arrived after %d: %s", key, n, k.latest, k.around(len(k.came)-1))
		}
	}
}

// arriveText notes a copy whose record holds the text of [label].
func (l *ledger) arriveText(text string) {
	key, n, err := readLabel(text)
	if err != nil {
		l.fell(other, "%v", err)
		return
	}
	l.arrive(key, n)
}

// totals are counts of one round or several.
type totals struct{ records, copies, failures int }

func (t *totals) add(l *ledger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.lines {
		t.records += len(k.calls)
	}
	t.copies += l.copies
	t.failures += l.failures
}

// around shows the first copies about the i-th as runs.
func (k *line) around(i int) string {
	var runs []string
	from := 0
	for j := 1; j <= len(k.came); j++ {
		if j < len(k.came) && k.came[j] == k.came[j-1]+1 {
			continue
		}
		if a, b := k.came[from], k.came[j-1]; a == b {
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

// close checks what can be checked at the end: what is missing but for the records
// that the account says were dropped, and how many copies there are too many where
// each failure may bring so many again.
func (l *ledger) close(dropped uint64, perFailure int) []fall {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost, first, total := 0, "", 0
	for _, key := range sortedKeys(l.lines) {
		k := l.lines[key]
		for n, c := range k.calls {
			if c.taken && !c.excused && c.copies == 0 {
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
		l.fallLocked(missing, "%d records are missing, %d say they were dropped; the first is %s", lost, dropped, first)
	}
	if again := l.copies - total; again > l.failures*perFailure {
		l.fallLocked(excess, "%d copies too many after %d failures, each good for %d", again, l.failures, perFailure)
	}
	return slices.Clone(l.falls)
}

// counts returns how many copies of each record have come, by the head of its label.
func (l *ledger) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	copies := map[string]int{}
	for key, k := range l.lines {
		for n, c := range k.calls {
			if c.copies > 0 {
				copies[fmt.Sprintf("<%s/%d/", key, n)] = c.copies
			}
		}
	}
	return copies
}

// distinct returns how many records have come.
func (l *ledger) distinct() int { return len(l.counts()) }

// beginning checks that no call among from..to-1 whose record came follows one whose record
// did not.
func (l *ledger) beginning(key string, from, to int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.line(key)
	lost := -1
	for n := from; n < min(to, len(k.calls)); n++ {
		switch came := k.calls[n].copies > 0; {
		case !came && lost < 0:
			lost = n
		case came && lost >= 0:
			l.fallLocked(missing, "%s: record %d is lost, and %d is not", key, lost, n)
			return
		}
	}
}

// onlyAgain checks that what has come since before is want.
func (l *ledger) onlyAgain(before, want map[string]int) {
	for rec, n := range l.counts() {
		if n -= before[rec]; n != want[rec] {
			l.fell(excess, "%s came %d times after the restart, want %d", rec, n, want[rec])
			return
		}
		delete(want, rec)
	}
	for rec := range want {
		l.fell(missing, "%s was in the spool and did not come", rec)
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

// label returns the text that names a record, followed by padding.
func label(key string, n, pad int) string {
	return fmt.Sprintf("<%s/%d/%d>%s", key, n, pad, padding[:pad])
}

// readLabel reads a text of label, all of it. It is quick: a peer that is slow hides
// what a quick one shows.
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

// The ledger finds what it is there to find, and nothing else.
func TestLedger(t *testing.T) {
	// Calls 0 to 5 one after the other; call 6 and 7 overlap.
	tests := map[string]struct {
		came     []int
		failures int
		dropped  uint64
		want     map[kind]int
	}{
		"in order":                  {came: []int{0, 1, 2, 3, 4, 5, 6, 7}},
		"overlapping calls":         {came: []int{0, 1, 2, 3, 4, 5, 7, 6}},
		"again after a failure":     {came: []int{0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7}, failures: 1},
		"again without a failure":   {came: []int{0, 1, 2, 3, 3, 4, 5, 6, 7}, want: map[kind]int{excess: 1}},
		"too much for one failure":  {came: []int{0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7}, failures: 1, want: map[kind]int{excess: 1}},
		"a later one first":         {came: []int{0, 3, 1, 2, 3, 4, 5, 6, 7}, failures: 1, want: map[kind]int{disorder: 1}},
		"the order of later copies": {came: []int{0, 1, 2, 3, 3, 2, 1, 4, 5, 6, 7}, failures: 1},
		"one is missing":            {came: []int{0, 1, 3, 4, 5, 6, 7}, want: map[kind]int{missing: 1}},
		"one is dropped":            {came: []int{0, 1, 3, 4, 5, 6, 7}, dropped: 1},
		"nobody's":                  {came: []int{0, 1, 2, 3, 4, 5, 6, 7, 9}, want: map[kind]int{other: 1}},
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
			for _, n := range tt.came {
				l.arriveText(label("k", n, n))
			}
			got := map[kind]int{}
			for _, f := range l.close(tt.dropped, 3) {
				got[f.kind]++
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("found %v, want %v: %v", got, tt.want, l.falls)
			}
		})
	}
}

// An excused record has no place in the order; it neither comes late nor makes others
// late.
func TestLedgerExcuses(t *testing.T) {
	l := newLedger()
	for range 4 {
		l.end("k", l.begin("k"), true)
	}
	l.excuse("k", 1)
	l.excuse("k", 3)
	for _, n := range []int{3, 0, 2, 1} {
		l.arrive("k", n)
	}
	if falls := l.close(0, 0); len(falls) > 0 {
		t.Error(falls)
	}
}

// The calls of another process are one after the other. What was under way when it
// died may come or not.
func TestLedgerForeign(t *testing.T) {
	l := newLedger()
	l.foreign("k")
	for _, n := range []int{0, 1, 2, 4, 5} {
		l.arrive("k", n)
	}
	l.returned("k", 0, 3)
	l.returned("k", 4, 6)
	if falls := l.close(0, 0); len(falls) > 0 {
		t.Error(falls)
	}
	l.arrive("k", 3)
	l.returned("k", 6, 7)
	if falls := l.close(0, 0); len(falls) != 2 || falls[0].kind != disorder || falls[1].kind != missing {
		t.Error(falls)
	}
}

func TestLabel(t *testing.T) {
	if key, n, err := readLabel(label("a", 17, 5)); key != "a" || n != 17 || err != nil {
		t.Error(key, n, err)
	}
	for _, bad := range []string{"", "<a/1/2>x", "<a/1/2>xxx", "<a/1/2>xy", "a/1/2>xx", "<a/-1/2>xx", "<a/1>", "<a/1/2"} {
		if _, _, err := readLabel(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

package loki

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// A lokiModel handles the entries of one stream like Loki 3.7. It first refuses entries that are
// too old or too new, and then those that are too far behind the newest entry.
type lokiModel struct {
	now    time.Time
	newest time.Time
	stored map[string]bool
}

func (m *lokiModel) push(r *request) (int, string) {
	const labels = `{app="it's; 7 errors like: \"x\""}`
	errs := map[string]int{}
	var in []gotEntry
	second := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	for _, e := range r.streams[0].Entries {
		oldest := m.now.Add(-7 * 24 * time.Hour)
		switch {
		case e.Time.Before(oldest):
			errs[fmt.Sprintf("entry for stream '%s' has timestamp too old: %s, oldest acceptable timestamp is: %s", labels, second(e.Time), second(oldest))]++
		case e.Time.After(m.now.Add(10 * time.Minute)):
			errs[fmt.Sprintf("entry for stream '%s' has timestamp too new: %s", labels, second(e.Time))]++
		case len(e.Line) > 1000:
			errs[fmt.Sprintf("max entry size '1000' bytes exceeded for stream '%s' while adding an entry with length '%d' bytes", labels, len(e.Line))]++
		case len(e.Meta) > 2:
			errs[fmt.Sprintf("stream '%s' has too many structured metadata labels: '%d', limit: '2'. Please see", labels, len(e.Meta))]++
		default:
			in = append(in, e)
		}
	}
	var text []string
	ignored := 0
	for _, e := range in {
		if cutoff := m.newest.Add(-time.Hour); e.Time.Before(cutoff) {
			if ignored++; ignored <= 10 {
				text = append(text, fmt.Sprintf("entry with timestamp %s ignored, reason: 'entry too far behind, entry timestamp is: %s, oldest acceptable timestamp is: %s',\n", e.Time.UTC(), second(e.Time), second(cutoff)))
			}
			continue
		}
		m.stored[e.Line] = true
		if e.Time.After(m.newest) {
			m.newest = e.Time
		}
	}
	m.now = m.now.Add(50 * time.Millisecond)
	if ignored > 0 {
		return 400, strings.Join(text, "") + fmt.Sprintf("user 'fake', total ignored: %d out of %d for stream: %s", ignored, len(in), labels)
	}
	if len(errs) == 0 {
		return 204, ""
	}
	var parts []string
	for e, n := range errs {
		if len(errs) > 1 || n > 1 {
			e = fmt.Sprintf("%d errors like: %s", n, e)
		}
		parts = append(parts, e)
	}
	return 400, strings.Join(parts, "; ")
}

// The client refuses exactly the entries that Loki has not stored, even if several entries have a
// time in the same second as the limit.
func TestRefusedEntriesWithinOneSecond(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON} {
		for name, at := range map[string]struct {
			base   time.Duration // time of the first entry, relative to now
			newest time.Duration
			n      int
		}{
			"behind":           {-time.Hour - 500*time.Millisecond, 0, 10},
			"far more behind":  {-time.Hour - 5*time.Second, 0, 100},
			"all behind":       {-time.Hour - 5*time.Second, 0, 5},
			"too old":          {-7*24*time.Hour - 500*time.Millisecond, -8 * 24 * time.Hour, 10},
			"too new":          {10*time.Minute - 500*time.Millisecond, 0, 20},
			"too old and long": {-7*24*time.Hour - 2*time.Second, -8 * 24 * time.Hour, 60},
			"wide and too old": {-7*24*time.Hour - 300*time.Millisecond, -8 * 24 * time.Hour, 10},
		} {
			t.Run(fmt.Sprint(w, " ", name), func(t *testing.T) {
				now := time.Now().Truncate(time.Second).Add(437 * time.Millisecond)
				m := &lokiModel{now: now, newest: now.Add(at.newest), stored: map[string]bool{}}
				p := &peer{}
				p.answer = func(_ int, r *request) (int, string, http.Header) { s, text := m.push(r); return s, text, nil }
				e := &encoded{t: t, s: sinkFor(t, p, Config{Wire: w, MetadataAll: true, Concurrency: 1, Limits: Limits{MaxAge: -1, MaxFuture: -1}})}
				for i := range at.n {
					msg := fmt.Sprint("e", i)
					if strings.HasSuffix(name, "long") && i%7 == 0 {
						msg += strings.Repeat("x", 1000)
					}
					e.add(nil, event(now.Add(at.base+time.Duration(i)*100*time.Millisecond), 0, msg))
				}
				// After Loki has stored this entry, copies of the other entries are too old, so
				// Loki refuses them.
				if strings.HasPrefix(name, "wide") {
					e.add(nil, event(now, 0, "newest"))
				}
				got := e.deliver()
				b := e.as(e.s.Encoder().Codec())
				for i, r := range b.All() {
					parsed, _ := e.s.enc.form.parse(r.Data)
					line, _, _ := e.s.enc.codec.parts(parsed)
					en := string(line)
					if refused := slices.Contains(got, i); refused == m.stored[en] {
						t.Errorf("%d: stored %v, refused %v: %.40s", i, m.stored[en], refused, en)
					}
				}
				if by := e.s.observed.counts(); len(got) == 0 || int(by[tooOld]+by[tooNew]+by[tooFarBehind]+by[lineTooLong]) != len(got) {
					t.Errorf("counted %v, %d refused", by, len(got))
				}
			})
		}
	}
}

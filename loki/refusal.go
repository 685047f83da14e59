package loki

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/forebay-log/forebay/internal/lazy"
)

// A refusalText is the parsed text of a response with status 400 that refuses entries. The text
// does not number the refused entries, so an entry is recognized by the limit that it exceeds, or
// by its time. Loki checks the entries of a stream in the order of the request and against one time
// limit. Therefore the entries that are refused because of their time are the earliest or the
// latest ones.
type refusalText struct {
	// limits are the limits that the refused entries exceed.
	limits []entryLimit
	// old is the time limit that the earliest entries exceed. They are refused with the reason
	// tooOld or tooFarBehind.
	old secondLimit
	// newest is the time limit that the latest entries exceed. They are refused with the reason
	// tooNew.
	newest secondLimit
	// exact contains the times, in Unix ns, of entries that are refused with the reason
	// tooFarBehind.
	exact []int64
	// exactOnly is true if exact contains the times of all refused entries.
	exactOnly bool

	// count is the number of refused entries according to the text.
	count int
	// total is the number of entries that Loki has checked according to the text, or 0 if the text
	// has no such number.
	total int
	// complete is true if the text was received to its end and every message in it was recognized.
	// Only then do all entries that the text does not name count as stored.
	complete bool
}

// A secondLimit is a time limit in whole seconds, like all times in the text. An entry in the same
// second as the limit may be before or after the limit.
type secondLimit struct {
	why reason
	// given is false if the text contains no such limit.
	given bool
	// second is the Unix second that contains the limit.
	second int64
	// n is the number of refused entries in that second. In the field old of a refusalText, they
	// are the earliest entries of the second. In the field newest, they are the latest.
	n int
}

// An entryLimit is a limit for the size of a single entry. The fields are the largest accepted
// values, or noLimit: line is the length of the line in bytes, pairs the number of metadata pairs,
// and bytes the size of the metadata.
type entryLimit struct {
	why                reason
	line, pairs, bytes int
}

// noLimit is the value of those fields of an entryLimit that do not apply.
const noLimit = math.MaxInt

// notRefused marks an entry that was not refused. It is not a reason of [Stats].
const notRefused reason = math.MaxUint8

// These regular expressions match parts of the texts that name entries: the labels of a stream in
// quotes, a time in RFC 3339, and the number of equal messages, which Loki merges ("3 errors like:
// …").
const (
	inLabels = `'(?:[^'"]|"(?:[^"\\]|\\.)*")*'`
	inTime   = `([0-9TZ:+-]+)`
	likes    = `(?:(\d+) errors like: )?`
)

// These are the texts of Loki 3.7 that name entries, from pkg/validation, pkg/distributor,
// pkg/chunkenc and pkg/ingester. The times in them are in whole seconds, except those of the first
// ten entries that are too far behind.
var (
	timeText    = lazy.Regexp(likes + `entry for stream (` + inLabels + `) has timestamp too (?:old: ` + inTime + `, oldest acceptable timestamp is: ` + inTime + `|new: ` + inTime + `)`)
	behindText  = lazy.Regexp(`(?:entry with timestamp (\S+ \S+ [-+]\d{4}) \S+ ignored, reason: ')?entry too far behind, entry timestamp is: ` + inTime + `, oldest acceptable timestamp is: ` + inTime)
	ignoredText = lazy.Regexp(`total ignored: (\d+) out of (\d+) for stream`)
	longText    = lazy.Regexp(likes + `max entry size '(\d+)' bytes exceeded for stream(?: (` + inLabels + `))?`)
	metaText    = lazy.Regexp(likes + `stream (` + inLabels + `) (?:(includes structured metadata, but)|has structured metadata too large: '\d+' bytes, limit: '(\d+)' bytes|has too many structured metadata labels: '\d+', limit: '(\d+)')`)

	// streamText matches the labels of a stream. Matches are removed before the occurrences of
	// likeText are counted, because label values may contain any text.
	streamText = lazy.Regexp(`stream ` + inLabels)

	// labelsText matches errors about the labels of a stream.
	labelsText = lazy.Regexp(`couldn't parse labels|error parsing labels|has \d+ label names; limit|has label (?:name|value) too long|has duplicate label name|missing required labels|at least one label pair`)
)

// requestText matches errors about requests that Loki cannot parse: errors of jsoniter, which
// contain the position, errors of the protobuf decoder, and the prefix that Loki before version 3.0
// added to them.
var requestText = lazy.Regexp(`error found in #|loghttp\.PushRequest|proto: |couldn't parse push request`)

// In the text of a response, likeText follows the number of equal messages (see likes).
var likeText = []byte(" errors like: ")

// parseRefusals parses the text of a response with status 400. The parameter whole reports whether
// text is complete. If the text names no entries, the result f is nil. For several segments,
// bySegment[i] contains the refusals of segs[i], or is nil if there are none. The slice bySegment
// itself is nil if a refusal cannot be assigned to a segment.
func parseRefusals(text []byte, whole bool, segs []segment) (f *refusalText, bySegment []*refusalText) {
	f, bySegment = new(refusalText), make([]*refusalText, len(segs))
	// The variable messages is the number of messages. The variable counted is the number of those
	// messages that contain a number of entries. The variable named is true if any message names an
	// entry.
	messages, counted, named := 0, 0, false
	// The function seen is called for a message about n entries of the stream with the given
	// labels. It returns the refusals of that stream, and the number n.
	seen := func(n, labels []byte) (of *refusalText, k int) {
		messages++
		k, err := strconv.Atoi(string(n))
		if err != nil || k < 1 {
			k = 1
		} else {
			counted++
		}
		f.count += k
		if len(segs) == 1 {
			return f, k
		}
		i := segmentOf(segs, labels)
		if i < 0 || bySegment == nil {
			bySegment = nil
			return f, k
		}
		if bySegment[i] == nil {
			bySegment[i] = &refusalText{complete: true}
		}
		bySegment[i].count += k
		return bySegment[i], k
	}
	for _, m := range timeText().FindAllSubmatch(text, -1) {
		of, n := seen(m[1], m[2])
		if m[5] != nil {
			if own, ok := parseSecond(m[5]); ok {
				named = true
				of.newest.add(tooNew, own, own, n, own < of.newest.second)
			}
			continue
		}
		own, ok1 := parseSecond(m[3])
		if oldest, ok2 := parseSecond(m[4]); ok1 && ok2 {
			named = true
			of.old.add(tooOld, own, oldest, n, oldest > of.old.second)
		}
	}
	for _, m := range longText().FindAllSubmatch(text, -1) {
		of, _ := seen(m[1], m[3])
		if n, err := strconv.Atoi(string(m[2])); err == nil && n > 0 {
			named = true
			of.limits = append(of.limits, entryLimit{lineTooLong, n, noLimit, noLimit})
		}
	}
	for _, m := range metaText().FindAllSubmatch(text, -1) {
		of, _ := seen(m[1], m[2])
		l := entryLimit{invalid, noLimit, noLimit, noLimit}
		for i, limit := range []*int{&l.pairs, &l.bytes, &l.pairs} {
			if m[3+i] != nil {
				// If the first group of the match contains no number, Atoi returns 0: no metadata
				// is permitted.
				*limit, _ = strconv.Atoi(string(m[3+i]))
			}
		}
		named = true
		of.limits = append(of.limits, l)
	}
	f.complete = whole && counted == bytes.Count(streamText().ReplaceAll(text, nil), likeText) && (messages == 1 || counted == messages)
	f.parseTooFarBehind(text, whole)
	if !f.complete || len(f.exact) > 0 || f.old.why == tooFarBehind {
		bySegment = nil
	}
	if !named && !f.old.given && len(f.exact) == 0 {
		return nil, nil
	}
	return f, bySegment
}

// segmentOf returns the index of the segment whose labels are all contained in the parameter
// labels, which may contain additional labels from Loki. If several segments qualify, it returns
// the one with the most labels. If there is none, or two have equally many labels, it returns -1.
func segmentOf(segs []segment, labels []byte) int {
	named := map[string]string{}
	if !eachLabel(bytes.Trim(labels, "'"), func(name []byte, value string) { named[string(name)] = value }) {
		return -1
	}
	best, most := -1, 0
	for i := range segs {
		n, all := 0, true
		eachLabel(segs[i].st.labels, func(name []byte, value string) {
			have, ok := named[string(name)]
			n, all = n+1, all && ok && have == value
		})
		switch {
		case !all || n < most:
		case n == most:
			best = -1
		default:
			best, most = i, n
		}
	}
	return best
}

// parseTooFarBehind parses an ingester's messages about entries that are too far behind the newest
// entry of their stream. The ingester does not count entries that the distributor has already
// refused, so the text is complete only if it states the total.
func (f *refusalText) parseTooFarBehind(text []byte, whole bool) {
	for _, m := range behindText().FindAllSubmatch(text, -1) {
		own, ok1 := parseSecond(m[2])
		oldest, ok2 := parseSecond(m[3])
		if !ok1 || !ok2 {
			continue
		}
		f.complete = false
		t, err := time.Parse("2006-01-02 15:04:05 -0700", string(m[1]))
		if err != nil {
			f.old.add(tooFarBehind, own, oldest, 1, oldest > f.old.second)
			continue
		}
		f.exact = append(f.exact, t.UnixNano())
		f.old.add(tooFarBehind, own, oldest, 0, oldest > f.old.second)
	}
	m := ignoredText().FindSubmatch(text)
	if m == nil || len(f.exact) == 0 {
		return
	}
	f.count, _ = strconv.Atoi(string(m[1]))
	f.total, _ = strconv.Atoi(string(m[2]))
	f.exactOnly = f.count == len(f.exact)
	f.complete = whole && !bytes.Contains(text, []byte("rate limit"))
}

// add is called for n refused entries with a time in the Unix second entrySecond, and for the limit
// that they exceed. The parameter further reports whether limit refuses more entries than s.second;
// in this case it replaces s.second. The entries are counted in s.n if they are in the second of
// the limit.
func (s *secondLimit) add(why reason, entrySecond, limit int64, n int, further bool) {
	if !s.given || further {
		*s = secondLimit{why: why, given: true, second: limit}
	}
	if entrySecond == s.second {
		s.n += n
	}
}

// parseSecond parses a time in RFC 3339 and returns its Unix second.
func parseSecond(b []byte) (int64, bool) {
	t, err := time.Parse(time.RFC3339, string(b))
	return t.Unix(), err == nil
}

// floorSecond returns the Unix second that contains t, in Unix ns.
func floorSecond(t int64) int64 {
	s := t / 1e9
	if t%1e9 < 0 {
		s--
	}
	return s
}

// mark assigns a reason to each refused entry of order, which must be sorted by time, and
// notRefused to all other entries. n is the number of refused entries. The result sure reports
// whether the response proves that all other entries are stored.
func (f *refusalText) mark(p *push, order []int32) (whys []reason, n int, sure bool) {
	whys = make([]reason, len(order))
	hit := func(k int, why reason) {
		if whys[k] == notRefused {
			whys[k] = why
			n++
		}
	}
	latest := int64(math.MinInt64) // latest time in f.exact
	exact := map[int64]bool{}
	for _, t := range f.exact {
		exact[t] = true
		latest = max(latest, t)
	}
	inOld := 0 // number of entries refused so far in the second of the limit
	for k, i := range order {
		whys[k] = notRefused
		r := &p.recs[i]
		for _, l := range f.limits {
			if l.exceeded(p.form, r) {
				hit(k, l.why)
			}
		}
		second := floorSecond(r.time)
		switch {
		case exact[r.time]:
			hit(k, f.old.why)
		case f.exactOnly, !f.old.given || second > f.old.second:
		case second < f.old.second, r.time <= latest:
			hit(k, f.old.why)
		case len(f.exact) > 0:
			// The text contains the times of only the first ten entries. The next entries of this
			// second are also too far behind, up to the total in the text.
			if f.complete && n < f.count {
				hit(k, f.old.why)
			}
		case inOld < f.old.n:
			inOld++
			hit(k, f.old.why)
		}
	}
	if f.newest.given {
		// The loop begins with the latest entry. All entries after the second of the limit are
		// refused. Within that second, the text states how many are refused.
		left := f.newest.n
		for k := len(order) - 1; k >= 0; k-- {
			second := floorSecond(p.recs[order[k]].time)
			if second < f.newest.second || second == f.newest.second && left == 0 {
				break
			}
			if second == f.newest.second {
				left--
			}
			hit(k, f.newest.why)
		}
	}
	return whys, n, f.complete && n == f.count && (f.total == 0 || f.total == len(order))
}

// exceeded reports whether r, a record in form f, exceeds l.
func (l *entryLimit) exceeded(f form, r *rec) bool {
	if l.line != noLimit {
		return int(r.line) > l.line
	}
	pairs, size := f.metaSize(r.data)
	return pairs > l.pairs || size > l.bytes
}

package fluent

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/internal/backoff"
)

// Servers have limits that the protocol cannot express: a server that finds a message too large
// closes the connection or does not respond. Limits are therefore learned per server, and never
// from a closed connection alone:
//
//	a frame ends a connection ──▶ a smaller one is accepted, and so on, alternations times
//	     └─▶ frames are no larger than the largest accepted one
//	the search of package deliver condemns records of three sizes, and nothing as large as the
//	smallest of them is accepted
//	     └─▶ records of that size and above are rejected at once, for a minute: dead letters
//
//	a frame has no acknowledgement, and the connection stays open
//	     └─▶ frames have at most leastLimit, and larger records go alone: fluentd counts up to
//	         16 KiB of a neighboring frame, so a size that is accepted alone can be too large
//
// One or two condemned records prove nothing, because their content may be at fault. After the
// minute, the next large record is sent like any other. If it is condemned, too, the limit is
// valid for twice as long, up to an hour.
//
// A limit is discarded when a frame as large as the one that ended a connection is accepted, and
// after relearn. Values below leastLimit are never considered a limit: all known receivers
// accept them.
const (
	alternations = 4
	relearn      = time.Hour
	leastLimit   = 16 << 10
	sizesToTrust = 3
	firstTrust   = time.Minute
)

// limits are the learned size limits of a server, in bytes of payload.
type limits struct {
	frame int       // limit of a frame; 0 if unknown
	until time.Time // end of the validity of frame

	largest int // the largest frame accepted since died was set
	died    int // the smallest frame that ended a connection; 0 if there was none
	turns   int // number of frames accepted after such an end
	again   bool
	alone   int // size of the last record that ended a connection alone
	most    int // the largest frame accepted since mostAt
	mostAt  time.Time
	proven  int // most, or less if a connection ended at a smaller frame since

	records recordLimit
}

// recordLimit is the learned size from which a server accepts no record.
type recordLimit struct {
	refused []int     // different sizes of condemned records, discarded when a frame as large is accepted
	last    time.Time // time of the last condemned record
	times   int       // number of times that the limit became valid
	trusted time.Time // the limit is valid until this time
}

// size returns the limit: records of this size and above are refused. 0 means no limit.
func (l *recordLimit) size(now time.Time) int {
	if !now.Before(l.trusted) {
		return 0
	}
	return slices.Min(l.refused)
}

// condemned records that a record of n bytes was condemned, and that no frame as large was accepted.
// It reports whether the limit has become valid.
func (l *recordLimit) condemned(now time.Time, n int) bool {
	if now.Sub(l.last) > relearn {
		*l = recordLimit{}
	}
	l.last = now
	if len(l.refused) < sizesToTrust && !slices.Contains(l.refused, n) {
		l.refused = append(l.refused, n)
	}
	if len(l.refused) < sizesToTrust {
		return false
	}
	l.trusted = now.Add(backoff.Ceil(firstTrust, relearn, l.times))
	l.times++
	return true
}

// accepted records that a frame of n bytes was accepted.
func (l *recordLimit) accepted(n int) {
	if slices.ContainsFunc(l.refused, func(size int) bool { return size <= n }) {
		*l = recordLimit{} // at least one of them was refused for another reason
	}
}

// forget discards limits that are no longer valid.
func (l *limits) forget(now time.Time) {
	if !l.until.IsZero() && !now.Before(l.until) {
		*l = limits{records: l.records}
	}
}

// accepted records that the server accepted a frame of n bytes.
func (l *limits) accepted(now time.Time, n int) {
	l.forget(now)
	if now.Sub(l.mostAt) > relearn {
		l.most, l.proven, l.mostAt = 0, 0, now
	}
	l.most, l.largest, l.proven = max(l.most, n), max(l.largest, n), max(l.proven, n)
	l.records.accepted(n)
	switch {
	case l.died == 0:
	case n >= l.died: // the end had another reason
		l.died, l.turns, l.again, l.frame = 0, 0, false, 0
	case l.again:
		l.again = false
		if l.turns++; l.turns >= alternations && l.died > leastLimit {
			l.frame, l.until = max(leastLimit, l.largest), now.Add(relearn)
		}
	}
}

// ended records that a connection ended, or was given up, while a frame of n bytes was the oldest
// without an acknowledgement. single: the frame has one record. silent: the server kept the
// connection open.
func (l *limits) ended(now time.Time, n int, single, silent bool) {
	l.forget(now)
	if silent && n > leastLimit {
		l.frame, l.until = leastLimit, now.Add(relearn)
	}
	if l.died == 0 || n < l.died {
		l.died, l.turns = n, 0
	}
	if n <= l.largest {
		l.largest = 0
	}
	l.proven = min(l.proven, n-1)
	l.again = true
	if l.alone = 0; single {
		l.alone = n
	}
}

// condemned records that a record of n bytes was condemned by the search. It reports whether a limit
// was learned.
func (l *limits) condemned(now time.Time, n int) bool {
	if l.alone != n || n < leastLimit || now.Sub(l.mostAt) <= relearn && n <= l.most {
		return false
	}
	l.alone = 0
	return l.records.condemned(now, n)
}

// sizes reduces most to the learned limits of server i.
func (r *roster) sizes(i int, most bounds) bounds {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.health[i].limits
	if l.until.IsZero() && l.records.trusted.IsZero() {
		return most
	}
	now := time.Now()
	l.forget(now)
	if l.frame > 0 {
		most.frame = min(most.frame, l.frame)
	}
	if n := l.records.size(now); n > 0 && n <= most.record {
		most.record, most.refused, most.server = n-1, n, r.servers[i].label
	}
	return most
}

// proven returns the size above which a frame is sent alone, see session.putInOrder.
func (r *roster) proven(i int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.health[i].limits
	if l.forget(time.Now()); l.frame > 0 {
		return l.frame
	}
	return max(leastLimit, l.proven)
}

// accepted records that server i accepted a frame of n bytes.
func (r *roster) accepted(i, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].limits.accepted(time.Now(), n)
}

// endedAt records that a connection to server i ended at a frame of n bytes, see limits.ended.
func (r *roster) endedAt(i, n int, single, silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].limits.ended(time.Now(), n, single, silent)
}

// condemned records that a record of n bytes was condemned.
func (r *roster) condemned(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.health {
		r.health[i].limits.condemned(time.Now(), n)
	}
}

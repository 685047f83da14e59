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
// after relearn. Values below
// leastLimit are never considered a limit: no known receiver accepts less.
const (
	alternations = 4
	relearn      = time.Hour
	leastLimit   = 16 << 10
	sizesToTrust = 3
	firstTrust   = time.Minute
)

// limits are the learned size limits of a server, in bytes of payload.
type limits struct {
	frame int       // 0: none is known
	until time.Time // it is believed

	taken  int // the largest frame since died was set
	died   int // the smallest frame that ended a connection; 0: none
	turns  int // times that a frame was taken after such an end
	again  bool
	alone  int // size of the last record that ended a connection alone
	most   int // the largest frame taken since the time
	mostAt time.Time
	proven int // most, or less if a connection ended at a smaller frame since

	records recordLimit
}

// recordLimit is what is known of the size from which a server takes no record.
type recordLimit struct {
	refused []int     // sizes of condemned records, all different, since something as large was taken
	last    time.Time // when the last of them was
	times   int       // that the limit was believed
	trusted time.Time // it is believed until then
}

// size returns the limit: records of so many bytes, and more, are refused. 0: none is believed.
func (l *recordLimit) size(now time.Time) int {
	if !now.Before(l.trusted) {
		return 0
	}
	return slices.Min(l.refused)
}

// condemned notes that a record of n bytes was condemned, and nothing as large was taken. It
// reports whether a limit is believed because of it.
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

// took notes that something of n bytes was taken.
func (l *recordLimit) took(n int) {
	if slices.ContainsFunc(l.refused, func(size int) bool { return size <= n }) {
		*l = recordLimit{} // one of them, at least, was refused for another reason
	}
}

// forget forgets what is too old.
func (l *limits) forget(now time.Time) {
	if !l.until.IsZero() && !now.Before(l.until) {
		*l = limits{records: l.records}
	}
}

// took notes that the server has taken a frame.
func (l *limits) took(now time.Time, n int) {
	l.forget(now)
	if now.Sub(l.mostAt) > relearn {
		l.most, l.proven, l.mostAt = 0, 0, now
	}
	l.most, l.taken, l.proven = max(l.most, n), max(l.taken, n), max(l.proven, n)
	l.records.took(n)
	switch {
	case l.died == 0:
	case n >= l.died: // the end had another reason
		l.died, l.turns, l.again, l.frame = 0, 0, false, 0
	case l.again:
		l.again = false
		if l.turns++; l.turns >= alternations && l.died > leastLimit {
			l.frame, l.until = max(leastLimit, l.taken), now.Add(relearn)
		}
	}
}

// ended notes that a connection ended, or was left, while a frame was the oldest without
// an answer. silent means that the server kept the connection.
func (l *limits) ended(now time.Time, n int, single, silent bool) {
	l.forget(now)
	if silent && n > leastLimit {
		l.frame, l.until = leastLimit, now.Add(relearn)
	}
	if l.died == 0 || n < l.died {
		l.died, l.turns = n, 0
	}
	if n <= l.taken {
		l.taken = 0
	}
	l.proven = min(l.proven, n-1)
	l.again = true
	if l.alone = 0; single {
		l.alone = n
	}
}

// condemned notes that a record was condemned by the search. It reports whether a limit was
// learned.
func (l *limits) condemned(now time.Time, n int) bool {
	if l.alone != n || n < leastLimit || now.Sub(l.mostAt) <= relearn && n <= l.most {
		return false
	}
	l.alone = 0
	return l.records.condemned(now, n)
}

// sizes narrows most to what is known of a server.
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

// proven returns the size above which a frame goes alone, see session.putInOrder.
func (r *roster) proven(i int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.health[i].limits
	if l.forget(time.Now()); l.frame > 0 {
		return l.frame
	}
	return max(leastLimit, l.proven)
}

// took notes that a server has taken a frame of n bytes.
func (r *roster) took(i, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].limits.took(time.Now(), n)
}

// diedAt notes that a connection ended at a frame of n bytes.
func (r *roster) diedAt(i, n int, single, silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].limits.ended(time.Now(), n, single, silent)
}

// condemned notes that a record of n bytes was condemned.
func (r *roster) condemned(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.health {
		r.health[i].limits.condemned(time.Now(), n)
	}
}

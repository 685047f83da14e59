package fluent

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/internal/backoff"
)

// Forward servers have size limits that the protocol cannot express: a server closes the connection
// or does not respond if a message is too large. Limits are therefore learned for each server, from
// three observations. A closed connection alone is not sufficient, because it has many possible
// reasons.
//
//	frames of one size end connections, smaller ones in between are accepted (alternations times)
//	     └─▶ frames are no larger than the largest accepted one
//
//	records of three sizes have been given up, and the server accepts no frame as large as the
//	smallest of them
//	     └─▶ records of that size and above are rejected at once, for a minute: dead letters
//
//	a frame has no acknowledgement, and the connection stays open
//	     └─▶ frames have at most leastLimit, and larger records are sent alone: fluentd counts up
//	         to 16 KiB of the next frame to a frame, so a size that it accepts alone can be too
//	         large
//
// Package deliver gives up a record if the connection ends whenever the record is sent. One or two
// such records prove nothing, because their content may be the reason. After the minute, the next
// large record is sent like any other. If it is given up, too, the limit is valid for twice as
// long, up to an hour.
//
// A limit is discarded when the server accepts a frame as large as a frame that ended a connection.
// It is also discarded after the time relearn, because the configuration of a server can change.
const (
	// alternations is how many times a frame must be accepted right after a connection has ended
	// before a frame limit is learned. Fewer times can be a coincidence, such as a server that
	// restarts repeatedly.
	alternations = 4
	// relearn is how long a limit, or the evidence for a limit, is valid.
	relearn = time.Hour
	// leastLimit is the smallest limit that can be learned, in bytes of payload. All known
	// receivers accept frames of this size.
	leastLimit = 16 << 10
	// sizesToTrust is the number of different sizes of records that must have been given up before
	// a record limit is learned. A program that repeats one bad record produces only one size.
	sizesToTrust = 3
	// firstTrust is how long a record limit is valid the first time. It is short, because a wrong
	// limit turns good records into dead letters.
	firstTrust = time.Minute
)

// The type bounds contains the maximum sizes of what is sent to a server, in bytes of payload. They
// come from Config and from the limits that were learned for the server.
type bounds struct {
	frame   int    // maximum size of a frame with several records
	record  int    // maximum size of one record, which may exceed frame
	refused int    // size of a record that the server has rejected; 0: the limit comes from Config
	server  string // name of the server for which refused was learned
}

// The type limits contains the learned size limits of one server, and the evidence for them. All
// sizes are in bytes of payload. roster.mu guards all fields.
type limits struct {
	frame int       // limit of a frame; 0: none
	until time.Time // end of the validity of frame

	// The evidence for frame.
	smallestEnded   int  // smallest frame that ended a connection; 0: none
	largestAccepted int  // largest frame accepted since smallestEnded was set
	alternated      int  // number of frames that were accepted after a connection had ended
	endedSince      bool // a connection has ended since the last accepted frame

	// endedRecord is the size of the record that ended the last connection. It is set only if the
	// frame contained no other record, and is 0 otherwise.
	endedRecord int
	recentMax   int       // largest frame accepted since the time recentSince
	recentSince time.Time // start of the period of recentMax, at most relearn ago
	// proven is the size of the largest frame that the server is assumed to accept: recentMax, or
	// less if a smaller frame has ended a connection.
	proven int

	records recordLimit
}

// A recordLimit is the smallest size of records that a server does not accept, and the evidence for
// it.
type recordLimit struct {
	refused     []int     // different sizes of records that were given up; the smallest one is the limit
	last        time.Time // time at which the last record was given up
	validations int       // number of times that the limit became valid
	validUntil  time.Time // the limit is valid until this time
}

// size returns the limit: records of this size or larger are rejected. 0 means no limit.
func (l *recordLimit) size(now time.Time) int {
	if !now.Before(l.validUntil) {
		return 0
	}
	return slices.Min(l.refused)
}

// noteCondemned is called when package deliver has given up a record of n bytes because the server
// seems to close the connection at it. noteCondemned reports whether the limit has become valid.
// The caller must have checked that the server has recently accepted no frame of this size.
func (l *recordLimit) noteCondemned(now time.Time, n int) bool {
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
	l.validUntil = now.Add(backoff.Ceil(firstTrust, relearn, l.validations))
	l.validations++
	return true
}

// noteAccepted is called when a frame of n bytes was accepted. If a record of at most n bytes was
// given up before, its size was not the reason, so the evidence is discarded.
func (l *recordLimit) noteAccepted(n int) {
	if slices.ContainsFunc(l.refused, func(size int) bool { return size <= n }) {
		*l = recordLimit{}
	}
}

// forget discards the frame limit and its evidence if the limit is no longer valid.
func (l *limits) forget(now time.Time) {
	if !l.until.IsZero() && !now.Before(l.until) {
		*l = limits{records: l.records}
	}
}

// noteAccepted is called when the server has accepted a frame of n bytes.
func (l *limits) noteAccepted(now time.Time, n int) {
	l.forget(now)
	if now.Sub(l.recentSince) > relearn {
		l.recentMax, l.proven, l.recentSince = 0, 0, now
	}
	l.recentMax, l.largestAccepted, l.proven = max(l.recentMax, n), max(l.largestAccepted, n), max(l.proven, n)
	l.records.noteAccepted(n)
	switch {
	case l.smallestEnded == 0:
	case n >= l.smallestEnded: // the size was not the reason why the connection ended
		l.smallestEnded, l.alternated, l.endedSince, l.frame = 0, 0, false, 0
	case l.endedSince:
		l.endedSince = false
		if l.alternated++; l.alternated >= alternations && l.smallestEnded > leastLimit {
			l.frame, l.until = max(leastLimit, l.largestAccepted), now.Add(relearn)
		}
	}
}

// noteEnded is called when a session has ended while its oldest unacknowledged frame had n bytes.
// The parameter single reports whether that frame contained only one record. The parameter silent
// reports whether the client, not the server, closed the connection.
func (l *limits) noteEnded(now time.Time, n int, single, silent bool) {
	l.forget(now)
	if silent && n > leastLimit {
		l.frame, l.until = leastLimit, now.Add(relearn)
	}
	if l.smallestEnded == 0 || n < l.smallestEnded {
		l.smallestEnded, l.alternated = n, 0
	}
	if n <= l.largestAccepted {
		l.largestAccepted = 0
	}
	l.proven = min(l.proven, n-1)
	l.endedSince = true
	if l.endedRecord = 0; single {
		l.endedRecord = n
	}
}

// noteCondemned is called when package deliver has given up a record of n bytes. It reports whether
// a record limit has become valid. It is called for every server, so it ignores a record that did
// not end the last connection to this server.
func (l *limits) noteCondemned(now time.Time, n int) bool {
	if l.endedRecord != n || n < leastLimit || now.Sub(l.recentSince) <= relearn && n <= l.recentMax {
		return false
	}
	l.endedRecord = 0
	return l.records.noteCondemned(now, n)
}

package loki

import (
	"fmt"
	"sync/atomic"
)

// A reason says what a [Pusher] noticed about a record before or while sending.
type reason uint8

// The reasons. After the first group the record is delivered, changed; after the
// second it is refused.
const (
	labelTooMany    reason = iota // more than MaxLabels: the label became metadata
	labelTooLong                  // longer than MaxLabelValue: the label became metadata
	labelSpread                   // more values than MaxLabelValues: the label became metadata
	restamped                     // with TooOld "now": the record got the present time
	streamsFull                   // MaxStreams exist: the labels became metadata; of a new tenant: refused
	metadataLeftOut               // an item beyond MaxMetadataPairs or MaxMetadataBytes
	lineTruncated                 // longer than MaxLine, cut
	twin                          // with Nudge: no time was left for it alone, or it came too late to tell; if it is like another, Loki may keep one

	lineTooLong  // longer than MaxLine, or than Loki takes
	tooOld       // older than MaxAge, or than Loki takes
	tooNew       // further in the future than MaxFuture, or than Loki takes
	tooFarBehind // too far behind the newest entry of its stream, says Loki
	badTenant    // the tenant's name is none: never sent
	malformed    // not an entry, or of an unknown stream
	invalid      // Loki refused it for another reason

	reasons = 15 // number of reasons
)

var reasonNames = [reasons]string{
	"label-too-many", "label-too-long", "label-values", "restamped", "streams-full", "metadata-left-out", "line-truncated", "twin",
	"line-too-long", "too-old", "too-new", "too-far-behind", "bad-tenant", "malformed", "invalid",
}

// String returns the reason's name as it stands in reports.
func (r reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", r)
}

// counts counts by reason.
type counts [reasons]uint64

// Stats are the counters of a [Pusher] since it was made.
type Stats struct {
	Requests    uint64 // pushes made
	Failed      uint64 // pushes that were not taken as a whole
	Splits      uint64 // pushes that were too large, or refused for one of their streams; their entries are sent again in smaller ones
	Paced       uint64 // pushes that waited because Loki had told a rate limit
	WireBytes   uint64 // bytes of request bodies, compressed, of all attempts
	BodyBytes   uint64 // the same before compression
	Streams     int    // label sets in use
	LastError   string // of the last push that failed
	Unreachable bool   // the last push got no answer

	// ByReason counts records, labels and items of metadata by what was wrong with
	// them. Reasons that did not occur are missing; the map is the caller's.
	//
	// The record was delivered, changed:
	//
	//	label-too-many     more labels than MaxLabels: the label became metadata
	//	label-too-long     the label is longer than MaxLabelValue and became metadata
	//	label-values       the label has had more values than MaxLabelValues and became
	//	                   metadata
	//	restamped          with TooOld "now": the record has the present time
	//	streams-full       MaxStreams exist: the labels became metadata
	//	metadata-left-out  an item beyond MaxMetadataPairs or MaxMetadataBytes
	//	line-truncated     the line is longer than MaxLine and was cut
	//	twin               with Nudge: the record may have the time of another one;
	//	                   if their lines are equal, too, Loki may keep one of them
	//
	// The record was refused:
	//
	//	line-too-long   longer than MaxLine, or than Loki takes
	//	too-old         older than MaxAge, or than Loki takes
	//	too-new         further in the future than MaxFuture, or than Loki takes
	//	too-far-behind  too far behind the newest entry of its stream, says Loki
	//	bad-tenant      the tenant has no valid name; the record was never sent
	//	streams-full    MaxStreams exist, and the tenant is new
	//	malformed       not an entry, or of an unknown stream
	//	invalid         Loki refused the record for another reason
	ByReason map[string]uint64
}

// noticed counts by reason what was noticed while encoding and while pushing.
type noticed [reasons]atomic.Uint64

// note counts one more for a reason.
func (n *noticed) note(r reason) { n[r].Add(1) }

// counts returns the numbers so far.
func (n *noticed) counts() (c counts) {
	for i := range n {
		c[i] = n[i].Load()
	}
	return c
}

// byReason returns the numbers of the reasons that occurred, by name.
func (c *counts) byReason() map[string]uint64 {
	m := map[string]uint64{}
	for r, n := range c {
		if n > 0 {
			m[reasonNames[r]] = n
		}
	}
	return m
}

package loki

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// A Reason says what a [Pusher] noticed about a record before or while sending.
type Reason uint8

// The reasons. After the first group the record is delivered, changed; after the
// second it is refused.
const (
	LabelTooMany    Reason = iota // more than MaxLabels: the label became metadata
	LabelTooLong                  // longer than MaxLabelValue: the label became metadata
	StreamsFull                   // MaxStreams exist: the labels became metadata; of a new tenant: refused
	MetadataLeftOut               // an item beyond MaxMetadataPairs or MaxMetadataBytes
	LineTruncated                 // longer than MaxLine, cut
	Twin                          // with Nudge: no time was left for it alone, or it came too late to tell; if it is like another, Loki may keep one

	LineTooLong  // longer than MaxLine, or than Loki takes
	TooOld       // older than MaxAge, or than Loki takes
	TooNew       // further in the future than MaxFuture, or than Loki takes
	TooFarBehind // too far behind the newest entry of its stream, says Loki
	BadTenant    // the tenant's name is none: never sent
	Malformed    // not an entry, or of an unknown stream
	Invalid      // Loki refused it for another reason

	Reasons = 13 // number of reasons
)

var reasonNames = [Reasons]string{
	"label-too-many", "label-too-long", "streams-full", "metadata-left-out", "line-truncated", "twin",
	"line-too-long", "too-old", "too-new", "too-far-behind", "bad-tenant", "malformed", "invalid",
}

// String returns the reason's name as it stands in reports.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", r)
}

// Counts counts by reason.
type Counts [Reasons]uint64

// String lists the reasons that occurred, such as "too-old=3 line-truncated=1".
func (c Counts) String() string {
	var sb strings.Builder
	for i, n := range c {
		if n != 0 {
			if sb.Len() > 0 {
				sb.WriteByte(' ')
			}
			fmt.Fprintf(&sb, "%s=%d", Reason(i), n)
		}
	}
	return sb.String()
}

// Stats are the counters of a [Pusher] since it was made.
type Stats struct {
	Requests    uint64 // pushes made
	Failed      uint64 // pushes that were not taken as a whole
	Splits      uint64 // pushes that were too large; their entries are sent again in smaller ones
	WireBytes   uint64 // bytes of request bodies, compressed, of all attempts
	BodyBytes   uint64 // the same before compression
	Streams     int    // label sets in use
	LastError   string // of the last push that failed
	ByReason    Counts // records, labels or items of metadata noticed
	Unreachable bool   // the last push got no answer
}

// noticed counts by [Reason] what was noticed while encoding and while pushing.
type noticed [Reasons]atomic.Uint64

// note counts one more for a reason.
func (n *noticed) note(r Reason) { n[r].Add(1) }

package loki

import (
	"fmt"
	"sync/atomic"
)

// A reason is an observation of a [Driver] about a record before or during sending.
type reason uint8

// The reasons. With the first group the record is changed and delivered; with the second
// it is refused.
const (
	labelTooMany    reason = iota // more than MaxLabels: the label became metadata
	labelTooLong                  // longer than MaxLabelValue: the label became metadata
	labelSpread                   // more values than MaxLabelValues: the label became metadata
	restamped                     // with TooOld "now": the record got the current time
	streamsFull                   // MaxStreams exist: the labels became metadata; of a new tenant: refused
	metadataLeftOut               // a pair beyond MaxMetadataPairs or MaxMetadataBytes
	lineTruncated                 // longer than MaxLine, cut
	twin                          // with Nudge: its time may not be unique; Loki may keep only one of two equal records

	lineTooLong  // longer than MaxLine, or than Loki accepts
	tooOld       // older than MaxAge, or than Loki accepts
	tooNew       // further in the future than MaxFuture, or than Loki accepts
	tooFarBehind // too much older than the newest entry of its stream, according to Loki
	badTenant    // the name of the tenant is invalid; never sent
	malformed    // not an entry, or of an unknown stream
	invalid      // Loki refused it for another reason

	reasons = 15 // number of reasons
)

var reasonNames = [reasons]string{
	"label-too-many", "label-too-long", "label-values", "restamped", "streams-full", "metadata-left-out", "line-truncated", "twin",
	"line-too-long", "too-old", "too-new", "too-far-behind", "bad-tenant", "malformed", "invalid",
}

// String returns the name of the reason in reports.
func (r reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", r)
}

// counts has a number for each reason.
type counts [reasons]uint64

// Stats are the counters of a [Driver] since its creation.
type Stats struct {
	Requests    uint64 // all pushes
	Failed      uint64 // pushes that were not accepted completely
	Splits      uint64 // pushes that were too large, or refused because of one stream, and are sent again in parts
	Paced       uint64 // pushes that waited because of a rate limit reported by Loki
	WireBytes   uint64 // bytes of request bodies, compressed, of all attempts
	BodyBytes   uint64 // the same before compression
	Streams     int    // label sets in use
	LastError   string // of the last failed push
	Unreachable bool   // the last push had no response

	// ByReason counts records, labels and items of metadata by the problem found. Reasons
	// that did not occur are absent. The caller owns the map.
	//
	// The record was changed and delivered:
	//
	//	label-too-many     more labels than MaxLabels: the label became metadata
	//	label-too-long     the label is longer than MaxLabelValue and became metadata
	//	label-values       the label had more values than MaxLabelValues and became
	//	                   metadata
	//	restamped          with TooOld "now": the record has the present time
	//	streams-full       MaxStreams exist: the labels became metadata
	//	metadata-left-out  an item beyond MaxMetadataPairs or MaxMetadataBytes
	//	line-truncated     the line is longer than MaxLine and was cut
	//	twin               with Nudge: the record may have the time of another one;
	//	                   if their lines are also equal, Loki may keep only one
	//
	// The record was refused:
	//
	//	line-too-long   longer than MaxLine, or than Loki accepts
	//	too-old         older than MaxAge, or than Loki accepts
	//	too-new         further in the future than MaxFuture, or than Loki accepts
	//	too-far-behind  too much older than the newest entry of its stream, according to Loki
	//	bad-tenant      the name of the tenant is invalid; the record was never sent
	//	streams-full    MaxStreams exist, and the tenant is new
	//	malformed       not an entry, or of an unknown stream
	//	invalid         Loki refused the record for another reason
	ByReason map[string]uint64
}

// observations count what happens to records during encoding and sending, by reason.
type observations [reasons]atomic.Uint64

// note increments the counter of a reason.
func (n *observations) note(r reason) { n[r].Add(1) }

// counts returns the current numbers.
func (n *observations) counts() (c counts) {
	for i := range n {
		c[i] = n[i].Load()
	}
	return c
}

// byReason returns the nonzero numbers by the name of the reason.
func (c *counts) byReason() map[string]uint64 {
	m := map[string]uint64{}
	for r, n := range c {
		if n > 0 {
			m[reasonNames[r]] = n
		}
	}
	return m
}

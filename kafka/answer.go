package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay/batch"
)

// handleAnswer handles r, the part of a produce response for the piece q at the head of the queue
// l. r is nil if the response has no such part. The error codes are those of
// https://kafka.apache.org/protocol#protocol_error_codes:
//
//	none, or a duplicate sequence number    the records are settled
//	too large                               the piece is halved; a single record is a suspect
//	invalid, with names of records          these are refused once the others are stored
//	invalid, without names                  the piece is halved; a single record is a suspect
//	broken sequence of the producer         the session ends; the next one sends the records again
//	permissions, topic, version             held: only a change of configuration helps
//	any other code, or r is nil             sent again, until Timeout
func (s *session) handleAnswer(l *partitionQueue, q *piece, r *kmsg.ProduceResponseTopicPartition) {
	if r == nil {
		q.unsure = true
		s.retry(l, errors.New("the broker's answer omits the partition"))
		return
	}
	code := kerr.ErrorForCode(r.ErrorCode)
	err := code
	if r.ErrorMessage != nil && *r.ErrorMessage != "" {
		err = fmt.Errorf("%w (broker: %s)", code, s.d.redactedText(*r.ErrorMessage))
	}
	switch code {
	case nil, kerr.DuplicateSequenceNumber:
		s.stored(l, q)
	case kerr.MessageTooLarge, kerr.RecordListTooLarge:
		if s.sequenceReusable(l, err) {
			s.tooLarge(l, q, err)
		}
	// The broker and the session disagree about the state of this producer. The broker may have
	// stored the piece.
	case kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.ProducerFenced,
		kerr.InvalidProducerIDMapping, kerr.InvalidTxnState:
		q.unsure = true
		s.fail(&failure{err: s.where(l, err)})
	// The leader has stored the piece, but not all replicas have confirmed it in time.
	case kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend:
		q.unsure = true
		s.retry(l, err)
	case kerr.UnknownServerError:
		s.retry(l, err)
	default:
		switch {
		case isFatal(code):
			s.fail(&failure{err: s.where(l, err), advice: batch.Hold})
		case kerr.IsRetriable(code):
			s.retry(l, err)
		default:
			if s.sequenceReusable(l, err) {
				s.invalid(l, q, r, err)
			}
		}
	}
}

// sequenceReusable reports whether the sequence number of the head of the queue l can be used for
// other records. After a failed attempt, the broker may have stored the head and would discard
// other records with the same number as duplicates. The session then fails, because the next
// session has new sequence numbers.
func (s *session) sequenceReusable(l *partitionQueue, err error) bool {
	if l.tries > 0 {
		s.fail(&failure{err: s.where(l, err)})
	}
	return l.tries == 0
}

// where adds the topic and partition of the queue l to err.
func (s *session) where(l *partitionQueue, err error) error {
	return fmt.Errorf("partition %d of topic %s: %w", l.at.partition, l.at.topic, err)
}

// tooLarge handles q, the head of the queue l, which is larger than the topic allows. It halves q
// and lowers the limit of the topic. A single record becomes a suspect if there is a reference
// record (a copy of an accepted record) for comparison. If there is none, it is refused at once,
// because the error itself names the size as the cause.
func (s *session) tooLarge(l *partitionQueue, q *piece, err error) {
	// The message names both remedies, because either the topic or MaxRecord may be misconfigured.
	if len(q.recs) == 1 {
		why := fmt.Errorf("%w: it has %d bytes on the wire; raise max.message.bytes of topic %s, or lower MaxRecord", err, len(q.buf), l.at.topic)
		if q.reference || s.d.reference(l.at) != nil {
			s.suspect(l, q, why, 1)
		} else {
			s.condemn(l, q, why)
		}
		return
	}
	// The new limit is half the size of the piece, but at least the size of its largest record.
	// Without that minimum, one large record would cause all records to be sent one by one.
	s.d.cut.Add(1)
	s.d.learn(l.at.topic, max(q.raw/2, q.largest))
	s.halve(l, q)
}

// halve replaces q, the head of the queue l, with two pieces of half the records each.
func (s *session) halve(l *partitionQueue, q *piece) {
	half := len(q.recs) / 2
	s.replace(l, q, q.recs[:half], q.recs[half:])
}

// invalid handles q, the head of the queue l, which contains a record that the broker does not
// accept. It refuses the records that the broker names. If the broker names none or all, q is
// halved until a single record is left, which becomes a suspect.
func (s *session) invalid(l *partitionQueue, q *piece, r *kmsg.ProduceResponseTopicPartition, err error) {
	text := ""
	if r.ErrorMessage != nil {
		text = *r.ErrorMessage
	}
	// RelativeOffset is the index in the Kafka batch; q.recs maps it to the index in the outlet's
	// batch. A broker may send an offset outside the batch, or the same offset twice.
	var named, rest []int32
	for _, e := range r.ErrorRecords {
		if i := int(e.RelativeOffset); i >= 0 && i < len(q.recs) && !slices.Contains(named, q.recs[i]) {
			named = append(named, q.recs[i])
		}
		if e.ErrorMessage != nil {
			text += " " + *e.ErrorMessage
		}
	}
	why := s.where(l, err)
	switch {
	// The topic is compacted. Brokers have no error code for that.
	case strings.Contains(text, "without key"):
		s.fail(&failure{err: s.where(l, fmt.Errorf("%w; the topic is compacted: set Key, or use another topic", err)), advice: batch.Hold})
	case len(q.recs) == 1:
		s.suspect(l, q, why, condemned)
	case len(named) > 0 && len(named) < len(q.recs):
		for _, i := range q.recs {
			if !slices.Contains(named, i) {
				rest = append(rest, i)
			}
		}
		q.named, q.reason = append(q.named, named...), why
		s.replace(l, q, rest)
	default:
		s.halve(l, q)
	}
}

// adviceFor returns the advice for a batch that could not be divided into pieces because of err.
// For example, a batch for an unknown topic is held.
func adviceFor(err error) batch.Advice {
	if isFatal(err) || errors.Is(err, kerr.UnknownTopicOrPartition) {
		return batch.Hold
	}
	return batch.Again
}

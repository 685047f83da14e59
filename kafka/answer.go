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

// judge handles the answer r to the head of a partition queue:
//
//	stored                                      the batch is done
//	too large                                   split; a single record is a suspect
//	records are named                           they are refused once the rest is stored
//	a batch is refused                          split; a single record is a suspect
//	the sequence of this producer is broken     the session ends, the next one sends it again
//	rights, topics, versions                    held: only a change of configuration helps
//	all others, and no answer                   sent again, until Timeout
func (s *session) judge(l *partitionQueue, q *piece, r *kmsg.ProduceResponseTopicPartition) {
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
		if s.settled(l, err) {
			s.tooLarge(l, q, err)
		}
	case kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.ProducerFenced,
		kerr.InvalidProducerIDMapping, kerr.InvalidTxnState:
		q.unsure = true
		s.fail(&failure{err: s.where(l, err)})
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
			if s.settled(l, err) {
				s.invalid(l, q, r, err)
			}
		}
	}
}

// settled reports whether the sequence number of the head can be reused for other records. If an
// earlier attempt failed, the head may be stored, and the broker would discard other records with
// the same number as duplicates. The session then ends, and its sequence with it.
func (s *session) settled(l *partitionQueue, err error) bool {
	if l.tries > 0 {
		s.fail(&failure{err: s.where(l, err)})
	}
	return l.tries == 0
}

// where adds the partition to err.
func (s *session) where(l *partitionQueue, err error) error {
	return fmt.Errorf("partition %d of topic %s: %w", l.at.partition, l.at.topic, err)
}

// tooLarge halves a piece. A single record that is too large is a suspect. If there is no reference
// record, it is refused: its size is evidence enough.
func (s *session) tooLarge(l *partitionQueue, q *piece, err error) {
	if len(q.recs) == 1 {
		why := fmt.Errorf("%w: it has %d bytes on the wire; raise max.message.bytes of topic %s, or lower MaxRecord", err, len(q.buf), l.at.topic)
		if q.reference || s.d.reference(l.at) != nil {
			s.suspect(l, q, why, 1)
		} else {
			s.condemn(l, q, why)
		}
		return
	}
	s.d.cut.Add(1)
	s.d.learn(l.at.topic, max(q.raw/2, q.largest))
	s.halve(l, q)
}

func (s *session) halve(l *partitionQueue, q *piece) {
	half := len(q.recs) / 2
	s.replace(l, q, q.recs[:half], q.recs[half:])
}

// invalid refuses the records that the broker names. If it names none or all of the batch, invalid
// divides the batch.
func (s *session) invalid(l *partitionQueue, q *piece, r *kmsg.ProduceResponseTopicPartition, err error) {
	text := ""
	if r.ErrorMessage != nil {
		text = *r.ErrorMessage
	}
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
	case strings.Contains(text, "without key"): // a compacted topic
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

// adviceFor returns the advice for a batch that cannot be packed.
func adviceFor(err error) batch.Advice {
	if isFatal(err) || errors.Is(err, kerr.UnknownTopicOrPartition) {
		return batch.Hold
	}
	return batch.Again
}

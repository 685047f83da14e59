package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A topic contains the metadata of a Kafka topic. It is immutable; refresh replaces it.
type topic struct {
	id      [16]byte // identifies the topic in produce requests from version 13 on
	leaders []int32  // node id of the leader of each partition; negative: no leader
}

// topic returns the metadata of the topic with the given name, which it requests if necessary. If
// the topic does not exist, the request is repeated for up to 3 s. A broker that has just started
// may not know the topic yet, and creating a topic takes time.
func (s *session) topic(name string) (*topic, error) {
	s.mu.Lock()
	t := s.topics[name]
	s.mu.Unlock()
	if t != nil {
		return t, nil
	}
	// Only Send calls topic, so waiting here does not delay the pieces of earlier batches.
	for began := time.Now(); ; {
		errs, err := s.refresh([]string{name})
		if err == nil {
			err = errs[name]
		}
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.topics[name], nil
		}
		var k *kerr.Error
		if time.Since(began) > min(s.d.c.Timeout, 3*time.Second) || errors.As(err, &k) && !k.Retriable {
			return nil, fmt.Errorf("topic %s: %w", name, err)
		}
		if !s.pause(50 * time.Millisecond) {
			return nil, context.Cause(s.ctx)
		}
	}
}

// refresh requests the metadata of topics (a Metadata request) and updates s.topics. It returns the
// errors of individual topics by name. It returns an error if no broker has responded.
func (s *session) refresh(names []string) (map[string]error, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = s.d.c.AutoCreate
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.d.c.RequestTimeout)
	defer cancel()
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return nil, s.d.hide(err)
	}
	// A topic with an error keeps its previous metadata.
	errs := map[string]error{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range resp.Topics {
		m := &resp.Topics[i]
		if m.Topic == nil {
			continue
		}
		if err := kerr.ErrorForCode(m.ErrorCode); err != nil {
			errs[*m.Topic] = err
			continue
		}
		t := &topic{id: m.TopicID, leaders: make([]int32, len(m.Partitions))}
		// A partition that the response omits or reports with an error has no leader.
		for i := range t.leaders {
			t.leaders[i] = -1
		}
		for _, p := range m.Partitions {
			if p.Partition >= 0 && int(p.Partition) < len(t.leaders) && p.ErrorCode == 0 {
				t.leaders[p.Partition] = p.Leader
			}
		}
		if len(t.leaders) == 0 {
			errs[*m.Topic] = kerr.LeaderNotAvailable
			continue
		}
		s.topics[*m.Topic] = t
	}
	for _, name := range names {
		if s.topics[name] == nil && errs[name] == nil {
			errs[name] = kerr.UnknownTopicOrPartition
		}
	}
	return errs, nil
}

// leader returns the node id of the broker that leads a partition, and the id of the topic. The
// node id is negative if there is no leader.
func (s *session) leader(at topicPartition) (node int32, id [16]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[at.topic]
	if t == nil || int(at.partition) >= len(t.leaders) {
		return -1, id
	}
	return t.leaders[at.partition], t.id
}

// pause waits for d. It returns false if the session ends earlier.
func (s *session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

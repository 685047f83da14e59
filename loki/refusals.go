package loki

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// refusals remembers records that will not be taken: what was refused comes again
// if others of its batch are open. Such records are counted once and not asked
// about again.
type refusals struct {
	n     atomic.Int64 // of why
	until atomic.Int64 // when it is forgotten, in Unix ns
	mu    sync.Mutex
	// why is at most maxRefusals long: what is forgotten is counted again.
	why map[recordKey]error
}

const (
	maxRefusals   = 1 << 16 // more than a few batches of the shortest records
	refusalsKnown = 10 * time.Minute
)

func (s *Pusher) keyOf(st *stream, r *rec) recordKey {
	return recordKey{st, r.time, maphash.Bytes(s.streams.seed, r.data)}
}

// A refusal is a record and why it was refused.
type refusal struct {
	key recordKey
	err error
}

// refusedBefore returns why a record was refused in an earlier Send, nil if it was
// not.
func (s *Pusher) refusedBefore(p *push, st *stream, r *rec) error {
	k := &s.known
	if k.n.Load() == 0 {
		return nil
	}
	key := s.keyOf(st, r)
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.why[key]
	if err != nil {
		p.refused = append(p.refused, refusal{key, err})
	}
	return err
}

// noteRefused counts a record, number i of p.
func (s *Pusher) noteRefused(p *push, i int32, st *stream, r *rec, why Reason, err error) {
	s.count(why)
	p.mu.Lock()
	defer p.mu.Unlock()
	key, moved := p.moved[i]
	if !moved {
		key = s.keyOf(st, r)
	}
	p.refused = append(p.refused, refusal{key, err})
}

// remember remembers the refused records of p.
func (s *Pusher) remember(p *push) {
	if len(p.refused) == 0 {
		return
	}
	k := &s.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why == nil || len(k.why) >= maxRefusals {
		k.why = map[recordKey]error{}
	}
	for _, r := range p.refused {
		k.why[r.key] = r.err
	}
	k.n.Store(int64(len(k.why)))
	k.until.Store(time.Now().Add(refusalsKnown).UnixNano())
}

// sweep forgets all if nothing was refused for a while.
func (k *refusals) sweep(now int64) {
	if k.n.Load() == 0 || now < k.until.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.why = nil
	k.n.Store(0)
}

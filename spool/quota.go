package spool

import (
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// room makes sure that need more bytes stay within the quota, with the header of a new
// segment if there is none to add to. It deletes settled batches of the current segment
// first, then damaged files, then, with "drop-oldest", the oldest segments without a
// batch that is handed out. It deletes nothing if all of these together are too little. The
// caller holds writeMu.
func (s *Spool) room(need int64, contentType string) error {
	for {
		header := int64(0)
		if s.w.seg == nil {
			header = segmentHeaderBytes + int64(len(contentType))
		}
		if need+header > s.opt.MaxBytes {
			return fmt.Errorf("%w: a batch of %d bytes does not fit into a quota of %d", ErrFull, need, s.opt.MaxBytes)
		}
		over, victim, settled := s.overQuota(need + header)
		switch {
		case !over:
			return nil
		case settled:
			_ = s.seal() // deletes it
		case victim.name == "":
			return fmt.Errorf("%w: quota of %d bytes reached", ErrFull, s.opt.MaxBytes)
		case victim.sealFirst:
			_ = s.seal()
		default:
			s.remove(victim.name)
		}
	}
}

// victim is a file to delete for the quota.
type victim struct {
	name      string
	sealFirst bool // it is the current segment: end it, then ask again
}

// overQuota reports whether need more bytes exceed the quota, and which file to delete: that file
// is then no longer in s.segs or s.aside, and its records are counted as dropped. settled reports
// that ending the current segment frees bytes without loss.
func (s *Spool) overQuota(need int64) (over bool, v victim, settled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.diskLocked()+need <= s.opt.MaxBytes {
		return false, v, false
	}
	if g := s.active; g != nil && g.done(s.acked) {
		return true, v, true
	}
	if s.diskLocked()-s.yieldLocked()+need > s.opt.MaxBytes {
		return true, v, false // nothing is dropped in vain
	}
	if len(s.aside) > 0 {
		v.name = s.aside[0].name
		s.aside = append(s.aside[:0], s.aside[1:]...)
		return true, v, false
	}
	if s.opt.OverQuota != dropOldest {
		return true, v, false
	}
	for i, g := range s.segs {
		if s.pinnedLocked(g) {
			continue
		}
		if g == s.active {
			return true, victim{name: g.name, sealFirst: true}, false
		}
		n := g.pending(g.settled(s.acked))
		s.count.droppedQuota += n
		s.count.droppedSegments++
		g.gone = true
		s.segs = append(s.segs[:i], s.segs[i+1:]...)
		s.events.Post(batch.Event{Output: s.opt.Name, Op: "drop", Err: ErrFull, Count: n})
		return true, victim{name: g.name}, false
	}
	return true, v, false
}

// yieldLocked returns how many bytes may go for an Append. The header of the
// current segment is not among them: the one after it has one, too.
func (s *Spool) yieldLocked() (n int64) {
	for _, a := range s.aside {
		n += a.disk
	}
	if s.opt.OverQuota != dropOldest {
		return n
	}
	for _, g := range s.segs {
		if s.pinnedLocked(g) {
			continue
		}
		if n += g.disk; g == s.active {
			n -= g.bytes()
		}
	}
	return n
}

// pinnedLocked reports whether g must stay: Next is in it, or a batch of it is
// handed out and not acknowledged.
func (s *Spool) pinnedLocked(g *segment) bool {
	if g.lane == parked {
		return false
	}
	return g == s.readSeg || max(g.firstSeq, g.noted(s.acked).seq) < min(g.end.seq, s.read.seq)
}

// diskLocked returns the size of segments and damaged files on disk.
func (s *Spool) diskLocked() (n int64) {
	for _, g := range s.segs {
		n += g.disk
	}
	for _, a := range s.aside {
		n += a.disk
	}
	return n
}

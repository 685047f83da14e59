package forebay

import (
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/bits"
	"sync/atomic"

	"github.com/forebay-log/forebay/internal/wallclock"
)

// A sample holds the arguments of Sample.
type sample struct {
	level        slog.Level
	first, every int
}

// levelStep is the distance between two levels of slog. A [Sample] applies to the levels from its
// level up to, but not including, level+levelStep.
const levelStep = slog.LevelInfo - slog.LevelDebug

// contains reports whether the sample applies to records of level l.
func (s *sample) contains(l slog.Level) bool { return l >= s.level && l < s.level+levelStep }

// fault describes why s is invalid or conflicts with an earlier sample. It returns "" if there is
// no fault.
func (s *sample) fault(earlier []sample) string {
	if s.first < 0 || s.every < 0 {
		return fmt.Sprintf("first %d and every %d are not valid counts; use 0 or more", s.first, s.every)
	}
	if s.first == 0 && s.every == 0 {
		return "it leaves out every record; give at least one count, or raise the level of the outputs"
	}
	for _, o := range earlier {
		if d := s.level - o.level; d < levelStep && -d < levelStep {
			return fmt.Sprintf("its levels overlap those of Sample(%v); give levels that are 4 apart", o.level)
		}
	}
	return ""
}

// A sampler counts the records of one Sample by message.
type sampler struct {
	sample
	seed  maphash.Seed
	slots [4096]sampleSlot
}

// A sampleSlot counts the records of one message. A different message with the same slot replaces
// that message and resets the count. Such a collision causes more records to be logged, never
// fewer.
type sampleSlot struct {
	key     atomic.Uint64         // hash of the message, its level and the name of the logger
	sec     atomic.Int64          // the second in which n was counted, in Unix time
	n       atomic.Uint64         // number of records in sec
	omitted atomic.Uint64         // number of records omitted since the last one that was logged
	burst   atomic.Pointer[burst] // the burst that reports omitted; may belong to an earlier message of the slot
}

// newSampler returns a sampler with no counts yet.
func newSampler(s sample) *sampler { return &sampler{sample: s, seed: maphash.MakeSeed()} }

// slot returns the slot of a message, and the key that identifies the message in the slot. name is
// the name of the logger.
func (s *sampler) slot(name, msg string, level slog.Level) (slot *sampleSlot, key uint64) {
	key = maphash.String(s.seed, msg) + uint64(level)
	if name != "" {
		key ^= bits.RotateLeft64(maphash.String(s.seed, name), 1)
	}
	return &s.slots[key%uint64(len(s.slots))], key
}

// take counts a record in the Unix second sec. ok reports whether the record must be logged, and
// omitted is the number of records omitted before it.
func (s *sampler) take(slot *sampleSlot, key uint64, sec int64, bursts *bursts) (ok bool, omitted uint64) {
	if old := slot.key.Load(); old != key && slot.key.CompareAndSwap(old, key) {
		slot.n.Store(0)
		if omitted := slot.omitted.Swap(0); omitted > 0 {
			bursts.addOmitted(slot, old, omitted)
		}
	}
	if old := slot.sec.Load(); old != sec && slot.sec.CompareAndSwap(old, sec) {
		slot.n.Store(0)
	}
	n := slot.n.Add(1)
	first := uint64(s.first)
	if n > first && (s.every == 0 || (n-first)%uint64(s.every) != 0) {
		slot.omitted.Add(1)
		return false, 0
	}
	return true, slot.omitted.Swap(0)
}

// passSampling reports whether the record in s must be logged. A logged record gets the attribute
// "repeated" with the number of records omitted before it. A record that is not logged is counted
// as dropped by each output that would have accepted it.
func (h *handler) passSampling(s *scratch) bool {
	c := h.core
	for _, sm := range c.samples {
		if !sm.contains(s.rec.Level) {
			continue
		}
		t := s.rec.Time
		if t.IsZero() {
			t = wallclock.Now()
		}
		slot, key := sm.slot(h.levels.name, s.rec.Message, s.rec.Level)
		ok, omitted := sm.take(slot, key, t.Unix(), &c.bursts)
		if omitted > 0 {
			s.attrs = append(s.attrs, slog.Uint64("repeated", omitted))
		}
		if ok {
			return true
		}
		own := h.levels.own.Level()
		for _, o := range c.outputs {
			if o.admits(s.rec.Level, own) {
				o.sampled.Add(1)
			}
		}
		if st := slot.burst.Load(); st == nil || st.key != key {
			c.begin(slot, key, h.levels.name, &s.rec)
		}
		return false
	}
	return true
}

package forebay

import (
	"hash/maphash"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// A sampler counts the records of one Sample by message.
type sampler struct {
	sample
	seed  maphash.Seed
	slots [4096]sampleSlot
}

// A sampleSlot counts the records of one message. If a different message gets the same slot, it
// replaces the first one and resets the count. Such a collision causes more records to be logged,
// never fewer.
type sampleSlot struct {
	key     atomic.Uint64 // hash of the message, its level and the name of the logger
	sec     atomic.Int64  // the second in which n was counted, in Unix time
	n       atomic.Uint64 // number of records in sec
	omitted atomic.Uint64 // number of records omitted since the last one that was logged
	// burst is the burst that counts the omitted records. It may belong to an earlier message of
	// the slot.
	burst atomic.Pointer[burst]
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

// take counts a record that was logged in the second sec of Unix time. ok reports whether the
// record must be logged, and omitted is the number of records omitted before it.
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

// A burst counts the records with the same message that a Sample omits. Their number is logged with
// the next record or, at the end of the burst, in a separate record.
type burst struct {
	slot      *sampleSlot
	key       uint64
	name, msg string // name of the logger and message of the first omitted record
	level     slog.Level
	omitted   uint64 // number of omitted records that were moved here from slot.omitted

	sec int64  // slot.sec at the last tick
	n   uint64 // slot.n at the last tick
}

// burstTick is the interval between checks of bursts. A burst has ended if its message did not
// occur between two checks.
const burstTick = time.Second

// bursts holds the bursts in progress. While there are any, a timer looks for bursts that have
// ended.
type bursts struct {
	mu      sync.Mutex // acquired once per burst and tick; no other lock is acquired under it
	list    []*burst
	ticking bool // the timer is set, or tick is running

	writing chan struct{} // contains an element while a goroutine logs ended bursts; capacity 1
}

// addOmitted adds a number of omitted records to the burst of the message with the given key. It is
// called when another message has replaced that message in the slot.
func (t *bursts) addOmitted(slot *sampleSlot, key, omitted uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := slot.burst.Load(); b != nil && b.key == key {
		b.omitted += omitted
	} else {
		// The burst has just ended, so the number is logged with the next record of the slot.
		slot.omitted.Add(omitted)
	}
}

// removeEnded removes the bursts that have ended, or every burst if all is set. It returns the
// removed bursts with omitted records, which the caller logs.
func (t *bursts) removeEnded(all bool) (ended []*burst) {
	t.mu.Lock()
	defer t.mu.Unlock()
	running := t.list[:0]
	for _, b := range t.list {
		sec, n := b.slot.sec.Load(), b.slot.n.Load()
		over := sec == b.sec && n == b.n || b.slot.key.Load() != b.key
		b.sec, b.n = sec, n
		if !all && !over {
			running = append(running, b)
			continue
		}
		// The pointer is removed before the count is read. A record that is omitted after the
		// removal begins a new burst, so that no count is lost.
		if b.slot.burst.CompareAndSwap(b, nil) {
			b.omitted += b.slot.omitted.Swap(0)
		}
		if b.omitted > 0 {
			ended = append(ended, b)
		}
	}
	clear(t.list[len(running):])
	t.list = running
	return ended
}

package loki

import "sync"

// A moves stores the new times of records that were moved to another stream or given the current
// time. Such a record keeps its new time when it is sent again, so that Loki recognizes the copy
// and counts the record only once. All methods are safe for concurrent use.
type moves struct {
	mu sync.Mutex
	at map[recordKey]int64 // new time, in Unix ns
}

// A recordKey identifies a record in flight by its contents. Tickets do not identify it, because
// tickets of different Writers can be equal.
type recordKey struct {
	from *stream // the stream before the move
	time int64   // the time before the move, in Unix ns
	hash uint64  // hash of the entry before the move
}

// maxMoves limits the number of stored times. At the limit all stored times are forgotten. A record
// that is sent again afterwards gets another time.
const maxMoves = 1 << 16

// find returns the new time of the record with key k, in Unix ns.
func (m *moves) find(k recordKey) (at int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok = m.at[k]
	return at, ok
}

// add stores the new time of the record with key k, in Unix ns.
func (m *moves) add(k recordKey, at int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil || len(m.at) >= maxMoves {
		m.at = map[recordKey]int64{}
	}
	m.at[k] = at
}

// remove removes the record with key k.
func (m *moves) remove(k recordKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, k)
}

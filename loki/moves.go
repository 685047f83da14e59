package loki

import "sync"

// The type moves stores the new times of records that were moved to another stream or received the
// current time. Such a record keeps its new time when it is sent again, so that Loki recognizes the
// copy and stores the record only once. All methods are safe for concurrent use.
type moves struct {
	mu sync.Mutex
	at map[recordKey]int64 // new time, in Unix ns
}

// A recordKey identifies a record in flight by its contents. The tickets (sequence numbers) of
// records are not sufficient, because different Writers can use the same tickets.
type recordKey struct {
	from *stream // the stream before the move
	time int64   // the time before the move, in Unix ns
	hash uint64  // hash of the entry before the move
}

// maxMoves limits the number of stored times. When it is reached, all stored times are discarded. A
// record that is sent again afterwards gets another time.
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

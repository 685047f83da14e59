package testkit

import (
	"fmt"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// A Model tracks the records that a producer sends to one destination. It computes the expected
// account from the records that the destination, the error handlers and the spool have received.
type Model struct {
	mu       sync.Mutex
	accepted uint64 // the records with tickets 1 to accepted were sent
	taken    uint64 // number of records in the memory of the sink
}

// Batch returns a batch of n records with the next tickets. Each record is a line of size bytes, at
// least 21, that begins with its ticket.
func (m *Model) Batch(n, size int, meta batch.Meta) *batch.Batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	var build batch.Batch
	buf := make([]byte, 0, size)
	for range n {
		m.accepted++
		buf = fmt.Appendf(buf[:0], "%020d", m.accepted)
		for len(buf) < size-1 {
			buf = append(buf, 'x')
		}
		build.Append(append(buf, '\n'), m.accepted, meta)
	}
	return &build
}

// Sent adds the result of a Send of b to the model. b must not contain gap markers. Sent returns
// the records that the sink did not accept.
func (m *Model) Sent(b *batch.Batch, err error) (rest *batch.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		return b
	}
	m.taken += uint64(b.Len())
	return nil
}

// Taken returns the number of records in the memory of the sink.
func (m *Model) Taken() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken
}

// Recall is called when a sink has returned n records from its memory.
func (m *Model) Recall(n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken -= n
}

// Accepted returns the number of records that were sent.
func (m *Model) Accepted() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.accepted
}

// Account returns the sum of two accounts: of the producer, and of a sink that has accepted records
// into its memory. held is the number of records that the producer still has.
func (m *Model) Account(sink batch.Account, held uint64) (batch.Account, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sink.Accepted != m.taken {
		return sink, fmt.Errorf("the sink accepted %d records into custody, and took %d", sink.Accepted, m.taken)
	}
	if err := sink.Check(); err != nil {
		return sink, fmt.Errorf("custody: %w", err)
	}
	a := batch.Account{Accepted: m.accepted}
	a.Pending.Slab = held
	sink.Accepted = 0
	a.Add(sink)
	return a, a.Check()
}

// Verify checks got, the tickets of the records that arrived. The last copies must be in order, and
// exactly want different records must have arrived.
func (m *Model) Verify(got []uint64, want uint64) error {
	last, _ := LastCopies(got)
	for i := 1; i < len(last); i++ {
		if last[i] <= last[i-1] {
			return fmt.Errorf("order: the last copy of record %d came after that of %d", last[i], last[i-1])
		}
	}
	if uint64(len(last)) != want {
		return fmt.Errorf("%d different records arrived, want %d%s", len(last), want, m.firstMissing(last))
	}
	return nil
}

// firstMissing returns a text that names the first record that is not in last, or "".
func (m *Model) firstMissing(last []uint64) string {
	want := uint64(1)
	for _, t := range last {
		if t != want {
			return fmt.Sprintf("; the first missing is %d", want)
		}
		want++
	}
	return ""
}

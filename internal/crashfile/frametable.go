package crashfile

import "slices"

// State.Big and State.BigMore list, in the mapped file, the records that have a frame in the
// companion file. With them, recovery detects missing frames.

// ExpectFrame stores in the mapped file that the companion file has a frame of the record. If
// recovery does not find the frame, it counts the record as damaged.
func (m *Memory) ExpectFrame(ticket uint64) {
	if at := slices.Index(m.state.Big[:], 0); at >= 0 && ticket <= MaxWord {
		StoreWord(&m.state.Big[at], ticket)
		return
	}
	m.unlisted[ticket] = struct{}{}
	StoreWord(&m.state.BigMore, uint64(len(m.unlisted)))
}

// ForgetFrame removes a record that is delivered or dropped from the list. It does nothing if the
// record is not in the list. It must be called before Ack for the same ticket, so that a recovery
// after a kill between the two calls does not expect the frame.
func (m *Memory) ForgetFrame(ticket uint64) {
	if at := slices.Index(m.state.Big[:], SealWord(ticket)); at >= 0 {
		StoreWord(&m.state.Big[at], 0)
		return
	}
	if _, ok := m.unlisted[ticket]; ok {
		delete(m.unlisted, ticket)
		StoreWord(&m.state.BigMore, uint64(len(m.unlisted)))
	}
}

package crashfile

// A frameTable lists, in the mapped file, the records that have a frame in the companion file. With
// it, recovery detects missing frames.
type frameTable struct {
	at   map[uint64]int // maps a ticket to its index in State.Big, or to -1 if the ticket is counted in BigMore
	free []int
	more uint64 // value of the word BigMore
}

// newFrameTable returns the table of a new file, in which every entry is free.
func newFrameTable() frameTable {
	t := frameTable{at: map[uint64]int{}, free: make([]int, BigTracked)}
	for i := range t.free {
		t.free[i] = BigTracked - 1 - i
	}
	return t
}

// ExpectFrame stores in the mapped file that the companion file has a frame of the record. If
// recovery does not find the frame, it counts the record as damaged.
func (m *Memory) ExpectFrame(ticket uint64) {
	t, at := &m.frames, -1
	if k := len(t.free); k > 0 && ticket <= MaxWord {
		at, t.free = t.free[k-1], t.free[:k-1]
		StoreWord(&m.state.Big[at], ticket)
	} else {
		t.more++
		StoreWord(&m.state.BigMore, t.more)
	}
	t.at[ticket] = at
}

// ForgetFrame removes a record that is delivered or dropped from the table. It must be called
// before Ack for the same ticket, so that a recovery after a kill between the two calls does not
// expect the frame.
func (m *Memory) ForgetFrame(ticket uint64) {
	t := &m.frames
	at, ok := t.at[ticket]
	if !ok {
		return
	}
	delete(t.at, ticket)
	if at < 0 {
		t.more--
		StoreWord(&m.state.BigMore, t.more)
		return
	}
	StoreWord(&m.state.Big[at], 0)
	t.free = append(t.free, at)
}

// Frames returns the number of expected frames and the number of free entries in the table.
func (m *Memory) Frames() (expected, free int) { return len(m.frames.at), len(m.frames.free) }

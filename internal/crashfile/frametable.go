package crashfile

// A frameTable lists in the mapped file which records have a frame in the companion file,
// so that recovery notices a missing frame.
type frameTable struct {
	at   map[uint64]int // by ticket: index in State.Big, or -1 if counted in BigMore
	free []int
	more uint64 // the word BigMore
}

// newFrameTable returns the table of a new file, in which every entry is free.
func newFrameTable() frameTable {
	t := frameTable{at: map[uint64]int{}, free: make([]int, BigTracked)}
	for i := range t.free {
		t.free[i] = BigTracked - 1 - i
	}
	return t
}

// ExpectFrame records that the frame of a record is in the companion file. A recovery that does not
// find it counts the record as damaged.
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

// ForgetFrame records that the record is no longer pending. It precedes the Ack of the
// ticket: after a kill between the two, the frame must not be expected.
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

// Frames returns how many frames are expected, and how many more the table can list.
func (m *Memory) Frames() (expected, free int) { return len(m.frames.at), len(m.frames.free) }

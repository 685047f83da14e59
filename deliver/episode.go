package deliver

// An episode is a state of failure that is reported once when it begins and once when it ends. It has no
// lock.
type episode struct{ on bool }

// begin reports whether the episode begins now.
func (e *episode) begin() bool {
	was := e.on
	e.on = true
	return !was
}

// end reports whether the episode ends now.
func (e *episode) end() bool {
	was := e.on
	e.on = false
	return was
}

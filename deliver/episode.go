package deliver

// An episode is a series of failures, of which only the beginning and the end are reported. It has
// no lock.
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

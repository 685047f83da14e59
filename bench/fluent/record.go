package fluent

// Tag is the tag of all events.
const Tag = "debug.test"

// Event is the struct that the benchmark rows post. It has 26 fields.
type Event struct {
	A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z string
}

const value = "value"

var (
	event = Event{value, value, value, value, value, value, value, value, value, value, value, value, value,
		value, value, value, value, value, value, value, value, value, value, value, value, value}
	wide = func() map[string]any { // the keys and values of Event as a map
		m := map[string]any{}
		for c := 'A'; c <= 'Z'; c++ {
			m[string(c)] = value
		}
		return m
	}()
)

// A What selects the type of the posted values.
type What uint8

const (
	Struct What = iota // an Event
	Map26              // a map with 26 strings
	Count              // a map with one integer
)

// each calls post n times with values of the selected type.
func (w What) each(n int, post func(v any)) {
	switch w {
	case Struct:
		for range n {
			post(event)
		}
	case Map26:
		for range n {
			post(wide)
		}
	case Count:
		for j := range n {
			post(map[string]any{"count": j})
		}
	}
}

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

// A What returns the value of event j.
type What func(j int) any

// Struct returns an Event.
func Struct(int) any { return event }

// Map26 returns a map with 26 strings.
func Map26(int) any { return wide }

// Count returns a new map with one integer, because a caller builds it for each event.
func Count(j int) any { return map[string]any{"count": j} }

package fluent

// Tag is the tag of all events.
const Tag = "debug.test"

// Event is the struct that the benchmark rows post. It has 26 fields.
type Event struct {
	A string `msg:"a" msgpack:"a"`
	B string `msg:"b" msgpack:"b"`
	C string `msg:"c" msgpack:"c"`
	D string `msg:"d" msgpack:"d"`
	E string `msg:"e" msgpack:"e"`
	F string `msg:"f" msgpack:"f"`
	G string `msg:"g" msgpack:"g"`
	H string `msg:"h" msgpack:"h"`
	I string `msg:"i" msgpack:"i"`
	J string `msg:"j" msgpack:"j"`
	K string `msg:"k" msgpack:"k"`
	L string `msg:"l" msgpack:"l"`
	M string `msg:"m" msgpack:"m"`
	N string `msg:"n" msgpack:"n"`
	O string `msg:"o" msgpack:"o"`
	P string `msg:"p" msgpack:"p"`
	Q string `msg:"q" msgpack:"q"`
	R string `msg:"r" msgpack:"r"`
	S string `msg:"s" msgpack:"s"`
	T string `msg:"t" msgpack:"t"`
	U string `msg:"u" msgpack:"u"`
	V string `msg:"v" msgpack:"v"`
	W string `msg:"w" msgpack:"w"`
	X string `msg:"x" msgpack:"x"`
	Y string `msg:"y" msgpack:"y"`
	Z string `msg:"z" msgpack:"z"`
}

const value = "value"

var (
	event = Event{value, value, value, value, value, value, value, value, value, value, value, value, value,
		value, value, value, value, value, value, value, value, value, value, value, value, value}
	wide = func() map[string]any { // the keys and values of Event as a map
		m := map[string]any{}
		for c := 'a'; c <= 'z'; c++ {
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

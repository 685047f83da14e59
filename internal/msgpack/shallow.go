package msgpack

// Nested returns the nesting depth of arrays and maps in the value at the beginning of b,
// including the outermost, as far as the value is well formed. It stops counting at limit.
func Nested(b []byte, limit int) int {
	n, _, _ := nested(b, limit)
	return n
}

func nested(b []byte, limit int) (deep int, rest []byte, err error) {
	t, b, err := Next(b)
	if err != nil || t.Kind != Array && t.Kind != Map {
		return 0, b, err
	}
	if limit <= 1 {
		return limit, b, ErrDepth
	}
	n := t.Len
	if t.Kind == Map {
		n *= 2
	}
	for range n {
		var k int
		k, b, err = nested(b, limit-1)
		if deep = max(deep, k); err != nil {
			break
		}
	}
	return deep + 1, b, err
}

// AppendShallow appends the value at the beginning of b with at most levels nested arrays
// and maps. Deeper ones become their JSON text or, if they are too deep for that, a text
// that reports it.
func AppendShallow(dst, b []byte, levels int) (out, rest []byte, err error) {
	before := b
	t, b, err := Next(b)
	if err != nil {
		return dst, b, err
	}
	if t.Kind != Array && t.Kind != Map {
		return append(dst, before[:len(before)-len(b)]...), b, nil
	}
	if levels <= 0 {
		text, rest, err := AppendJSON(nil, before)
		if err == ErrDepth {
			if rest, err = pass(before); err == nil {
				text = []byte("!ERROR: " + ErrDepth.Error())
			}
		}
		if err != nil {
			return dst, rest, err
		}
		return AppendStrBytes(dst, text), rest, nil
	}
	dst = append(dst, before[:len(before)-len(b)]...)
	n := t.Len
	if t.Kind == Map {
		n *= 2
	}
	for range n {
		if dst, b, err = AppendShallow(dst, b, levels-1); err != nil {
			return dst, b, err
		}
	}
	return dst, b, nil
}

// pass returns the bytes after the value at the beginning of b, at any depth.
func pass(b []byte) ([]byte, error) {
	for left := 1; left > 0; left-- {
		t, rest, err := Next(b)
		if err != nil {
			return b, err
		}
		b = rest
		switch t.Kind {
		case Array:
			left += t.Len
		case Map:
			left += 2 * t.Len
		}
	}
	return b, nil
}

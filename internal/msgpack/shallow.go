package msgpack

// Nested returns the nesting depth of arrays and maps in the value at the beginning of b, including
// the outermost. It returns at most limit. For a malformed value, it returns the depth of the part
// before the error.
func Nested(b []byte, limit int) int {
	n, _, _ := nested(b, limit)
	return n
}

// nested is like Nested, but also returns the rest of b. The error ends the recursion.
func nested(b []byte, limit int) (depth int, rest []byte, err error) {
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
		if depth = max(depth, k); err != nil {
			break
		}
	}
	return depth + 1, b, err
}

// AppendShallow appends the value at the beginning of b and returns the rest of b. It limits the
// nesting of arrays and maps to the number levels: deeper ones become their JSON text. If they
// exceed MaxDepth, they become a text that reports the error.
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
			if rest, err = skipDeep(before); err == nil {
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

// skipDeep returns the bytes after the value at the beginning of b. It accepts any nesting depth.
func skipDeep(b []byte) ([]byte, error) {
	for remaining := 1; remaining > 0; remaining-- {
		t, rest, err := Next(b)
		if err != nil {
			return b, err
		}
		b = rest
		switch t.Kind {
		case Array:
			remaining += t.Len
		case Map:
			remaining += 2 * t.Len
		}
	}
	return b, nil
}

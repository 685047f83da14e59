package msgpack

import "github.com/forebay-log/forebay/internal/keyset"

// AppendUnique appends the value b with unique keys in each map: a later key that equals an earlier
// one is renamed, see package keyset. If b is invalid, err is not nil and out ends with a part of
// the value.
func AppendUnique(dst, b []byte) (out []byte, err error) {
	keys := keyset.Get()
	defer keys.Free()
	out, _, err = unique(dst, b, keys)
	return out, err
}

// unique implements AppendUnique for the value at the beginning of b. keys contains the keys of the
// enclosing maps.
func unique(dst, b []byte, keys *keyset.Set) (out, rest []byte, err error) {
	t, rest, err := Next(b)
	if err != nil {
		return dst, b, err
	}
	if keys.Depth() == MaxDepth {
		return dst, b, ErrDepth
	}
	dst = append(dst, b[:len(b)-len(rest)]...)
	if t.Kind != Map && t.Kind != Array {
		return dst, rest, nil
	}
	keys.Open(nil)
	defer keys.Close()
	for range t.Len {
		if t.Kind == Map {
			if dst, rest, err = uniqueKey(dst, rest, keys); err != nil {
				return dst, rest, err
			}
		}
		if dst, rest, err = unique(dst, rest, keys); err != nil {
			return dst, rest, err
		}
	}
	return dst, rest, nil
}

// uniqueKey appends the key at the beginning of b. If the key is a duplicate string, uniqueKey
// renames it.
func uniqueKey(dst, b []byte, keys *keyset.Set) (out, rest []byte, err error) {
	if t, rest, err := Next(b); err == nil && t.Kind == Str {
		if suffix := keys.Suffix(t.Bytes); suffix != "" {
			return append(append(AppendStrHeader(dst, len(t.Bytes)+len(suffix)), t.Bytes...), suffix...), rest, nil
		}
	}
	if rest, err = Skip(b); err != nil {
		return dst, b, err
	}
	return append(dst, b[:len(b)-len(rest)]...), rest, nil
}

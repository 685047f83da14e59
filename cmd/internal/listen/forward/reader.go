package forward

import (
	"fmt"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// maxDepth is the maximum nesting of values in a message.
const maxDepth = 64

// A scanner finds the end of a MessagePack value that arrives in pieces. It examines each byte
// once.
type scanner struct {
	left []int // number of missing values at each depth
	at   int   // bytes scanned
}

// end returns the length of the value at the beginning of b. b contains the bytes of the previous
// call followed by new ones. The error is [msgpack.ErrShort] if the value is not complete.
func (s *scanner) end(b []byte) (int, error) {
	for s.at == 0 || len(s.left) > 0 {
		t, rest, err := msgpack.Next(b[s.at:])
		if err != nil {
			return 0, err
		}
		s.at = len(b) - len(rest)
		if len(s.left) > 0 {
			s.left[len(s.left)-1]--
		}
		n := t.Len
		if t.Kind == msgpack.Map {
			n *= 2
		}
		if n > 0 {
			if len(s.left) == maxDepth {
				return 0, errDepth
			}
			s.left = append(s.left, n)
		}
		for len(s.left) > 0 && s.left[len(s.left)-1] == 0 {
			s.left = s.left[:len(s.left)-1]
		}
	}
	n := s.at
	s.at = 0
	return n, nil
}

// A jsonScanner finds the end of a JSON array that arrives in pieces. It examines each byte once.
type jsonScanner struct {
	state jsonState
	depth int
	at    int // bytes scanned
}

// A jsonState tells whether a jsonScanner is within a string.
//
//	outside ──"──▶ inText ──\──▶ escaped ──any──▶ inText ──"──▶ outside
type jsonState uint8

const (
	outside jsonState = iota
	inText
	escaped
)

// end returns the length of the array at the beginning of b, which contains the bytes of the
// previous call followed by new ones. It does not validate the JSON.
func (s *jsonScanner) end(b []byte) (int, error) {
	for ; s.at < len(b); s.at++ {
		switch c := b[s.at]; {
		case s.state == escaped:
			s.state = inText
		case s.state == inText && c == '\\':
			s.state = escaped
		case c == '"' && s.state == inText:
			s.state = outside
		case s.state == inText:
		case c == '"':
			s.state = inText
		case c == '[' || c == '{':
			if s.depth++; s.depth > maxDepth {
				return 0, errDepth
			}
		case c == ']' || c == '}':
			if s.depth--; s.depth == 0 {
				n := s.at + 1
				s.at = 0
				return n, nil
			}
		}
	}
	return 0, msgpack.ErrShort
}

// isJSON reports whether a message is JSON. In MessagePack, the byte '[' would be a number.
func isJSON(msg []byte) bool { return msg[0] == '[' }

var errDepth = fmt.Errorf("values are nested more than %d levels deep", maxDepth)

// A reader reads the messages of one connection.
type reader struct {
	listen.Reader
	scan scanner
	json jsonScanner
}

// buffered returns the next message if it has arrived completely, otherwise nil. The message is
// valid until the next call of Read.
func (r *reader) buffered() ([]byte, error) {
	rest := r.Rest()
	for len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\n' || rest[0] == '\r' || rest[0] == '\t') {
		r.Consume(1) // white space between JSON messages
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return nil, nil
	}
	var n int
	var err error
	if isJSON(rest) {
		n, err = r.json.end(rest)
	} else {
		n, err = r.scan.end(rest)
	}
	switch {
	case err == nil && n <= r.Limits.MessageBytes:
		return r.Consume(n), nil
	case err == nil || err == msgpack.ErrShort && len(rest) >= r.Limits.MessageBytes:
		return nil, r.TooLong()
	case err == msgpack.ErrShort:
		return nil, nil
	case err == errDepth:
		return nil, err
	}
	return nil, fmt.Errorf("not the Forward protocol: the peer sent %s", listen.Quote(rest))
}

package forward

import (
	"fmt"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// maxDepth is the maximum nesting of values in a message.
const maxDepth = 64

// A scanner finds the end of a MessagePack value that arrives in several reads. It examines each
// byte once.
type scanner struct {
	missing []int // number of missing values at each level of nesting
	at      int   // number of bytes that were examined
}

// end returns the length of the value at the beginning of b. If the value is incomplete, it returns
// [msgpack.ErrShort]. The next call must pass the same bytes and more.
func (s *scanner) end(b []byte) (int, error) {
	for s.at == 0 || len(s.missing) > 0 {
		t, rest, err := msgpack.Next(b[s.at:])
		if err != nil {
			return 0, err
		}
		s.at = len(b) - len(rest)
		if len(s.missing) > 0 {
			s.missing[len(s.missing)-1]--
		}
		n := t.Len
		if t.Kind == msgpack.Map {
			n *= 2
		}
		if n > 0 {
			if len(s.missing) == maxDepth {
				return 0, errDepth
			}
			s.missing = append(s.missing, n)
		}
		for len(s.missing) > 0 && s.missing[len(s.missing)-1] == 0 {
			s.missing = s.missing[:len(s.missing)-1]
		}
	}
	n := s.at
	s.at = 0
	return n, nil
}

// A jsonScanner finds the end of a JSON array that arrives in several reads. It examines each byte
// once.
type jsonScanner struct {
	state jsonState
	depth int
	at    int // number of bytes that were examined
}

// A jsonState is the position of a jsonScanner relative to strings.
//
//	outside ──"──▶ inText ──\──▶ escaped ──any──▶ inText ──"──▶ outside
type jsonState uint8

const (
	outside jsonState = iota
	inText
	escaped
)

// end returns the length of the array at the beginning of b. If the array is incomplete, it returns
// [msgpack.ErrShort]. The next call must pass the same bytes and more. end does not validate the
// JSON.
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

// isJSON reports whether msg is JSON, which begins with '['. This byte cannot begin a valid message
// in MessagePack.
func isJSON(msg []byte) bool { return msg[0] == '[' }

var errDepth = fmt.Errorf("values are nested more than %d levels deep", maxDepth)

// A reader reads the messages of one connection.
type reader struct {
	listen.Reader
	scan scanner
	json jsonScanner
}

// buffered returns the next message, or nil if more data is needed. The message is valid until the
// next call of Read.
func (r *reader) buffered() ([]byte, error) {
	rest := r.Rest()
	for len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\n' || rest[0] == '\r' || rest[0] == '\t') {
		r.Consume(1) // skip white space between messages in JSON
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

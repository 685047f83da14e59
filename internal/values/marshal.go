package values

import (
	"encoding"
	"fmt"
)

// described appends the result of the method MarshalText or String of v.
func (l Leaf) described(dst []byte, v any) (out []byte) {
	defer func() {
		if p := recover(); p != nil {
			out = l.text(dst, FaultText(v, p))
		}
	}()
	switch v := v.(type) {
	case encoding.TextMarshaler:
		b, err := v.MarshalText()
		if err != nil {
			return l.text(dst, "!ERROR:"+err.Error())
		}
		return l.text(dst, string(b))
	case fmt.Stringer:
		return l.text(dst, v.String())
	}
	return l.null(dst)
}

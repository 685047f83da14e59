package encode

import (
	"log/slog"

	"github.com/forebay-log/forebay/internal/values"
)

// appendAttrsText appends everything that follows the built-in attributes, for logfmt and console:
// the attributes of the scope, attrs, stacks, and the end of the line.
func (s *scope) appendAttrsText(w *values.Walker, dst []byte, attrs []slog.Attr) []byte {
	console := w.Form == values.FormConsole && len(dst) > w.Base
	if console {
		dst = append(dst, ' ') // the second of two spaces between the message and the attributes
	}
	head := len(dst)
	if pre := s.pre; len(pre) > 0 {
		if len(dst) == w.Base {
			pre = pre[1:]
		}
		dst = append(dst, pre...)
	}
	dst = w.Attrs(dst, attrs)
	if console && len(dst) == head {
		dst = dst[:head-1]
	}
	dst = append(append(dst, s.trail...), w.Trail...)
	return append(dst, '\n')
}

package forebay

import (
	"errors"
	"log/slog"
	"regexp"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/redact"
)

// RedactKeys replaces the values of attributes with the given keys by "[redacted]" in all
// outputs, whatever the type of the value.
//
// A key applies to the names of:
//
//   - attributes and groups, including those of [slog.Logger.With] and WithGroup
//   - struct fields: the Go name and the names in all tags
//   - map entries
//   - members of JSON objects, even if the object is quoted in a text or a message
//
// Case is ignored. In a name with dots each part is compared: "token" also hides "auth.token". A
// key with dots matches consecutive names at any depth.
//
// Each part is compared as a whole: "token" hides neither "access_token" nor "tokens". A * at the
// beginning or end of a key without dots matches any text: "*token", "password*", "*secret*".
//
// docs/REDACTION.md lists the parts of a record that are searched. Redaction by key does not
// allocate for attributes of slog's built-in kinds. RedactKeys may be given several times. By
// default no key is redacted.
func RedactKeys(keys ...string) Option {
	return optionFunc(func(c *config) { c.redact.Keys = append(c.redact.Keys, keys...) })
}

// RedactPaths is like [RedactKeys], but only for values at the given paths. A path consists of
// names separated by dots, outermost first: "user.password" is the attribute password in the
// group user, the field Password of the struct user, or an entry of the map user. Groups opened
// with WithGroup count. A * matches any one name, as in "http.*.authorization". The elements of
// a list have no name: a path may omit them or contain a * for them. By default no path is
// redacted.
func RedactPaths(paths ...string) Option {
	return optionFunc(func(c *config) { c.redact.Paths = append(c.redact.Paths, paths...) })
}

// RedactPattern replaces the matches of re by "[redacted]" in every text: messages, keys, strings,
// errors and the errors they wrap, the results of methods such as String and MarshalJSON, and byte
// slices. It is also applied to the digits of numbers. A value in which a match was replaced is
// encoded as text or JSON.
//
// NewRouter returns an error if re matches the empty string. RedactPattern may be given
// several times. By default no pattern is redacted.
func RedactPattern(re *regexp.Regexp) Option {
	return optionFunc(func(c *config) { c.redact.Patterns = append(c.redact.Patterns, re) })
}

// ReplaceAttr rewrites or removes attributes for all outputs, with the arguments and rules of
// [slog.HandlerOptions]. fn is called for each attribute that is not a group, with its value
// resolved. If fn returns a zero Attr, the attribute is removed. Of the built-in attributes, fn
// receives only the message, with the key [slog.MessageKey]. The value that fn returns for this key
// is the new message. For time, level and source see encode.Options.
//
// With several functions, each receives the result of the previous one. [RedactKeys] and
// [RedactPaths] are applied before the functions, and again to the keys that the functions have
// changed. [RedactPattern] is applied last. fn may be called from multiple goroutines concurrently.
// If it panics, the value is replaced by the text of the panic. By default no attribute is
// rewritten.
func ReplaceAttr(fn func(groups []string, a slog.Attr) slog.Attr) Option {
	return optionFunc(func(c *config) { c.redact.Funcs = append(c.redact.Funcs, fn) })
}

// redact replaces the record in s with its redacted form.
func (h *handler) redact(s *scratch) {
	if s.walker == nil {
		s.walker = new(redact.Walker)
	}
	s.rec.Message, s.rec.Attrs = s.walker.Record(h.core.redact, h.place, s.rec.Message, s.attrs)
	s.redacted = true
}

// errWithheld is reported if redaction did not complete. The record is then logged with its level
// and time only.
var errWithheld = errors.New("forebay: the content of a record was withheld, because a method of one of its values called runtime.Goexit")

// withhold removes the message and the attributes of the record in s. The remaining level and time
// need no redaction. It is called if redaction did not complete, because a method of a value called
// runtime.Goexit.
func (h *handler) withhold(s *scratch) {
	h.core.events.post(batch.Event{Output: "redaction", Op: "panic", Err: errWithheld})
	s.rec.Message = redact.Text
	s.rec.Attrs = redact.Withheld()
	s.redacted = true
}

// clean returns an error with the redacted text of err. Without rules it returns err.
func (c *core) clean(err error) error {
	if c.redact == nil {
		return err
	}
	return errors.New(c.redact.String(err.Error()))
}

package forebay

import (
	"errors"
	"log/slog"
	"regexp"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/redact"
)

// RedactKeys keeps the values of attributes with these keys out of all outputs: the
// value, whatever it is, becomes "[redacted]".
//
// A key counts wherever it is the name of something: of an attribute or a group, also
// one of [slog.Logger.With] and WithGroup, of a field of a struct (by its own name and
// those of all its tags), of an entry of a map, of a member of an object in JSON that a value
// consists of, or that is quoted in a text or a message. Capitals do not matter. In a
// name with dots each part counts: "token" also hides "auth.token". A key with dots
// hides what lies at those names in a row, wherever that begins.
//
// A name has to be equal: "token" hides neither "access_token" nor "tokens". A * at the
// beginning or end of a key without dots stands for any text: "*token", "password*",
// "*secret*".
//
// docs/REDACTION.md says what is looked at, and what is not. Redaction by key allocates
// nothing for attributes of slog's own kinds. RedactKeys may be given several times.
func RedactKeys(keys ...string) Option {
	return optionFunc(func(c *config) { c.redact.Keys = append(c.redact.Keys, keys...) })
}

// RedactPaths is like [RedactKeys] for values at these paths only. A path is a row of
// names, beginning at the outermost, with dots between them: "user.password" is the
// attribute password in the group user, the field Password of the struct user, or
// the entry of a map. Groups that WithGroup opened count. A * stands for any one name, as
// in "http.*.authorization". The elements of a list have no name; a path may also have a
// * for them.
func RedactPaths(paths ...string) Option {
	return optionFunc(func(c *config) { c.redact.Paths = append(c.redact.Paths, paths...) })
}

// RedactPattern replaces what re matches by "[redacted]", in every text: messages, keys,
// strings, errors with all that they wrap, the results of methods such as String and
// MarshalJSON, byte slices. It is also applied to the digits of numbers. A value in which
// something was replaced is written as a text, or as JSON, from then on.
//
// An expression that matches the empty text is an error. RedactPattern may be given
// several times.
func RedactPattern(re *regexp.Regexp) Option {
	return optionFunc(func(c *config) { c.redact.Patterns = append(c.redact.Patterns, re) })
}

// ReplaceAttr rewrites or removes attributes for all outputs, with the arguments and by
// the rules of [slog.HandlerOptions]: fn is called for each attribute that is not a group,
// with its value resolved; a zero Attr removes it. Of the built-in attributes fn is
// offered the message alone, under the key [slog.MessageKey]; the value of what it
// returns is the message. For time, level and source see encode.Options.
//
// Of several functions each is offered what the one before returned. [RedactKeys] and
// [RedactPaths] come before the functions and, for keys that these have changed, once more
// after them; [RedactPattern] comes last. fn may be called from several goroutines at
// once. If it panics, the value is replaced by the text of the panic.
func ReplaceAttr(fn func(groups []string, a slog.Attr) slog.Attr) Option {
	return optionFunc(func(c *config) { c.redact.Funcs = append(c.redact.Funcs, fn) })
}

// redact makes of the record in s what the outputs may see.
func (h *handler) redact(s *scratch) {
	if s.walker == nil {
		s.walker = new(redact.Walker)
	}
	s.rec.Message, s.rec.Attrs = s.walker.Record(h.core.redact, h.place, s.rec.Message, s.attrs)
	s.redacted = true
}

var errWithheld = errors.New("forebay: a record was withheld, because a method of one of its values ended its redaction")

// withhold leaves of the record in s what needs no redaction, because redacting it did
// not end: a method of one of its values called runtime.Goexit.
func (h *handler) withhold(s *scratch) {
	h.core.events.post(batch.Event{Output: "redaction", Op: "panic", Err: errWithheld})
	s.rec.Message = redact.Text
	s.rec.Attrs = redact.Withheld()
	s.redacted = true
}

// clean returns an error with the text of err, redacted.
func (c *core) clean(err error) error {
	if c.redact == nil {
		return err
	}
	return errors.New(c.redact.String(err.Error()))
}

package encode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// A KnownError has the text of the error in its field Err. errors.Is and errors.As find that error.
func TestKnownErrorBehavesAsItsErr(t *testing.T) {
	n := 0
	asked := askedError{&n}
	wrap := fmt.Errorf("outer: %w", &pointerError{1})
	join := errors.Join(io.EOF, &pointerError{2})
	for _, err := range []error{asked, wrap, join, io.EOF, formattedError{}} {
		known := values.Known(err)
		var p *pointerError
		var a askedError
		if !errors.Is(known, err) || errors.As(known, &p) != errors.As(err, &p) || errors.As(known, &a) != errors.As(err, &a) || errors.Is(known, io.EOF) != errors.Is(err, io.EOF) ||
			errors.Is(known, io.ErrClosedPipe) || known.Error() != values.Known(known).Error() {
			t.Errorf("%T is another", err)
		}
		for _, format := range []string{"%v", "%s", "%q", "%+v", "%20s"} {
			if got, want := fmt.Sprintf(format, known), fmt.Sprintf(format, err); got != want {
				t.Errorf("%T: %s: got %s, want %s", err, format, got, want)
			}
		}
		if got, err := json.Marshal(known); err != nil || string(got) != string(jsontext.AppendString(nil, known.Error())) {
			t.Errorf("%s %v", got, err)
		}
		for name, e := range map[string]Encoder{"json": JSON(nil), "logfmt": Logfmt(nil), "console": Console(nil), "chain": JSON(chained), "console chain": Console(chained), "verbose": JSON(&Options{Errors: "verbose"})} {
			line := func(err error) string {
				dst, _, _ := e.Scope().Append(nil, &Record{Attrs: []slog.Attr{slog.Any("err", err), slog.Any("list", []error{err})}})
				return string(dst)
			}
			if got, want := line(known), line(err); got != want {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
		}
	}
	n = 0
	known := values.Known(asked)
	_ = fmt.Sprint(known, known.Error())
	if n != 1 {
		t.Errorf("asked %d times", n)
	}
	dst, _, _ := JSON(nil).Scope().Append(nil, &Record{Attrs: []slog.Attr{slog.Any("own", values.Known(errorAsJSON{})), slog.Any("group", values.Known(appendingError{}))}})
	if !strings.Contains(string(dst), `"own":"message","group":{"a":1}`) {
		t.Errorf("got %s", dst)
	}
	if _, knows := JSON(nil).(interface{ KnowsErrors(*values.KnownError) }); !knows || !values.WritesItself(errorAsJSON{}) || !values.WritesItself(appendingError{}) || values.WritesItself(asked) {
		t.Error("KnowsErrors is missing, or WritesItself is wrong for one of the errors")
	}
}

type (
	formattedError struct{}
	appendingError struct{}
)

func (formattedError) Error() string { return "short" }

func (formattedError) Format(s fmt.State, verb rune) {
	if s.Flag('+') {
		io.WriteString(s, "long")
		return
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), "short")
}

func (appendingError) Error() string { return "text" }

// AppendAttrs implements AttrAppender.
func (appendingError) AppendAttrs(dst []slog.Attr) []slog.Attr { return append(dst, slog.Int("a", 1)) }

// A KnownError without the field Err, and a nil *KnownError, are written like other errors. An
// empty values.Rendered is written as null.
func TestKnownErrorWithoutErr(t *testing.T) {
	v := values.NewValues(values.Style{Errors: values.ErrorObject})
	for _, c := range []struct {
		err  *values.KnownError
		want string
	}{{&values.KnownError{Text: "text"}, "text"}, {nil, "<nil>"}} {
		if errors.Is(c.err, io.EOF) || errors.As(c.err, new(*pointerError)) || c.err.Is(nil) {
			t.Errorf("%q is another error", c.want)
		}
		attrs := []slog.Attr{slog.Any("err", c.err), slog.Any("list", []any{c.err})}
		for name, e := range map[string]Encoder{"json": JSON(nil), "logfmt": Logfmt(nil), "console": Console(nil), "chain": JSON(chained), "console chain": Console(chained), "verbose": JSON(&Options{Errors: "verbose"})} {
			dst, _, err := e.Scope().Append(nil, &Record{Attrs: attrs})
			if err != nil || !strings.Contains(string(dst), c.want) {
				t.Errorf("%s: got %s, want %s, error %v", name, dst, c.want, err)
			}
		}
		if got := string(v.AppendError([]byte("{"), nil, "e", c.err)); !strings.Contains(got, `"Message":"`+c.want+`"`) {
			t.Errorf("got %s", got)
		}
		if got := string(v.AppendText(nil, nil, slog.AnyValue(values.Known(c.err)))); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	for _, x := range []any{values.Rendered(nil), []any{values.Rendered{}}} {
		if got := string(v.AppendValue(nil, nil, slog.AnyValue(x))); strings.Trim(got, "[]") != "null" {
			t.Errorf("got %s", got)
		}
	}
}

type (
	askedError   struct{ n *int }
	pointerError struct{ Code int }
	errorAsJSON  struct{}
)

func (e askedError) Error() string               { *e.n++; return "text" }
func (e *pointerError) Error() string            { return fmt.Sprint("pointer ", e.Code) }
func (errorAsJSON) Error() string                { return "message" }
func (errorAsJSON) MarshalJSON() ([]byte, error) { return []byte(`"not this"`), nil }

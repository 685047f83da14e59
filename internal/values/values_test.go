package values

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

type (
	someUUID  [16]byte
	otherGuid [16]byte
	silent    [16]byte // has neither String nor MarshalText
	digest    [16]byte // has String, but is not a UUID
)

func (u someUUID) String() string { return "its own" }

func (u otherGuid) MarshalText() ([]byte, error) { return []byte("its own"), nil }

func (d digest) String() string { return "digest" }

func TestUUIDsAreRecognizedByTypeName(t *testing.T) {
	for range 2 { // in the second round, the result is in the cache
		for _, x := range []any{someUUID{1}, otherGuid{1}} {
			if uuidOf(x) == nil {
				t.Errorf("%T is none", x)
			}
			if got := string(appendUUID([]byte("x"), uuidOf(x))); got != "x01000000-0000-0000-0000-000000000000" {
				t.Errorf("%T: %s", x, got)
			}
		}
		for _, x := range []any{nil, silent{}, digest{}, 1, "uuid", [16]byte{}, []byte{1}, &someUUID{}, time.Time{}} {
			if uuidOf(x) != nil {
				t.Errorf("%T is one", x)
			}
		}
	}
	u := someUUID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0xfe, 0xff}
	if got := string(appendUUID(nil, uuidOf(u))); got != "00010203-0405-0607-0809-0a0b0c0dfeff" {
		t.Error(got)
	}
}

// drawn contains the strings and keys that the tests choose at random.
var drawn = []string{"", "a", "key", "purchase", "a longer text without anything", "quote\"", `back\slash`, "tab\t", "\x00\x7f", "é", "🙂", "\xff", "\u2028", "line\nline",
	strings.Repeat("x", 31), strings.Repeat("x", 32), strings.Repeat("y", 33), strings.Repeat("z", 100) + "\"", "sixteen bytes...", "seventeen bytes.."}

func randomAttr(rng *rand.Rand) slog.Attr {
	key := drawn[rng.IntN(len(drawn))]
	switch rng.IntN(9) {
	case 0:
		return slog.Int64(key, rng.Int64()-rng.Int64())
	case 1:
		return slog.Uint64(key, rng.Uint64()>>rng.IntN(64))
	case 2:
		return slog.Bool(key, rng.IntN(2) == 0)
	case 3:
		return slog.Float64(key, []float64{0, 1.5, math.NaN(), math.Inf(1), 1e300, -0.1}[rng.IntN(6)])
	case 4:
		return slog.Duration(key, time.Duration(rng.Int64()))
	case 5:
		return slog.Time(key, time.Unix(rng.Int64N(1<<32), rng.Int64N(1e9)))
	case 6:
		return slog.Any(key, []any{someUUID{byte(rng.Uint32())}, []string{"a\"b"}, map[string]int{"q\"": 1}, digest{}, json.RawMessage("{\n\"a\": 1}")}[rng.IntN(5)])
	}
	return slog.String(key, drawn[rng.IntN(len(drawn))])
}

// AppendMembers writes members as if they were appended one at a time. If nested is true, the
// result is also escaped for a JSON string.
func TestAppendMembersWritesLikeAppendMember(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	v := NewValues(Style{Duration: DurationText})
	for range 3000 {
		attrs := make([]slog.Attr, rng.IntN(5))
		want, r := []byte("{"), new(Cache)
		for i := range attrs {
			attrs[i] = randomAttr(rng)
			want = v.AppendMember(want, r, attrs[i].Key, attrs[i].Value)
		}
		for _, nested := range []bool{false, true} {
			dst := append(make([]byte, 0, rng.IntN(200)+1), '{')
			for rest := attrs; len(rest) > 0; {
				var n int
				if dst, n = v.AppendMembers(dst, rest, nested); n < len(rest) {
					start := len(dst)
					dst = v.AppendMember(dst, r, rest[n].Key, rest[n].Value)
					if nested {
						dst = jsontext.EscapeTail(dst, start)
					}
					n++
				}
				rest = rest[n:]
			}
			if nested {
				var inner string
				if err := json.Unmarshal([]byte(`"`+string(dst)+`"`), &inner); err != nil {
					t.Fatalf("%v: %s", err, dst)
				}
				dst = []byte(inner)
			}
			if !bytes.Equal(dst, want) || !json.Valid(append(dst, '}')) {
				t.Fatalf("nested %v: got\n%s want\n%s", nested, dst, want)
			}
		}
	}
}

func TestEscapeTailEscapesTheRest(t *testing.T) {
	for _, s := range drawn {
		s = strings.ToValidUTF8(s, "?")
		for _, room := range []int{0, 4, 1000} {
			dst := append(make([]byte, 0, room), `a"b`...)
			got := string(jsontext.EscapeTail(append(dst, s...), 3))
			if want := `a"b` + string(jsontext.AppendEscaped(nil, s)); got != want {
				t.Errorf("%q: got %s, want %s", s, got, want)
			}
			got = string(jsontext.AppendEscapedNested(dst, s))
			if want := `a"b` + string(jsontext.AppendEscaped(nil, string(jsontext.AppendEscaped(nil, s)))); got != want {
				t.Errorf("%q nested: got %s, want %s", s, got, want)
			}
		}
	}
}

func TestAppendMembersAllocatesNothing(t *testing.T) {
	v := NewValues(Style{})
	attrs := []slog.Attr{slog.Int("n", 1), slog.String("s", "text"), slog.Float64("f", 1.5), slog.Any("id", someUUID{1}), slog.Bool("b", true), slog.Uint64("u", 1)}
	dst := make([]byte, 0, 4096)
	for _, nested := range []bool{false, true} {
		if n := allocs.PerRun(100, func() { v.AppendMembers(append(dst, '{'), attrs, nested) }); n != 0 {
			t.Errorf("nested %v: %v allocations", nested, n)
		}
	}
}

func ExampleValues_AppendMembers() {
	v := NewValues(Style{})
	dst, n := v.AppendMembers([]byte("{"), []slog.Attr{slog.Int("n", 1), slog.String("s", "x"), slog.Group("g", slog.Int("m", 2))}, false)
	fmt.Println(string(dst), n)
	// Output: {"n":1,"s":"x" 2
}

func TestAppendUnixNanoHasAllDigits(t *testing.T) {
	for _, ns := range []int64{-1, 0, 1, 999_999_999, 1e18 - 1, 1e18, 1763651094123456789, 1700000000000000000, 1699999999999999999, math.MaxInt64, math.MinInt64} {
		want := fmt.Sprint(max(ns, 0))
		if got := string(jsontext.AppendUnixNano([]byte{}, ns)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A stack begins with its source, followed by one line per call.
func TestAStackBeginsWithItsSource(t *testing.T) {
	var pcs [1]uintptr
	runtime.Callers(1, pcs[:])
	f := FrameOf(pcs[0])
	first, next := string(appendFrame(nil, f, 0)), string(appendFrame(nil, f, 1))
	if source, line, _ := strings.Cut(first, `","StackTrace":"`); !strings.HasPrefix(source, `,"Source":"values/values_test.go:`) || !strings.Contains(line, "TestAStackBeginsWithItsSource ") || next != `\n`+line {
		t.Errorf("%s\n%s", first, next)
	}
}

type askedError struct{ n *int }

func (e askedError) Error() string { *e.n++; return "text" }

func TestKnownErrorIsNotCalledAgain(t *testing.T) {
	for form, want := range map[errorForm]string{
		ErrorText: `"text"`, ErrorChain: `"text"`, ErrorVerbose: `"text"`,
		ErrorObject: `{"Type":"values.askedError","Message":"text"}`, ErrorException: `{"Type":"values.askedError","Message":"text"}`,
	} {
		n := 0
		k := Know(askedError{&n})
		v := NewValues(Style{Errors: form})
		line := v.AppendError([]byte("{"), nil, "err", &k)
		text := v.AppendText(nil, nil, slog.AnyValue(&k))
		if n != 1 || string(line) != `{"err":`+want || string(text) != "text" {
			t.Errorf("%d: called %d times: %s %s", form, n, line, text)
		}
	}
}

// Each error format writes wrapped errors in its own way. In lists, every format writes only the
// message.
func TestErrorFormsOfMembers(t *testing.T) {
	err := fmt.Errorf("a: %w", errors.Join(io.EOF, io.ErrNoProgress))
	for form, want := range map[errorForm]string{
		ErrorText:    `{"err":"a: EOF\nmultiple Read calls return no data or error"`,
		ErrorVerbose: `{"err":"a: EOF\nmultiple Read calls return no data or error"`,
		ErrorChain: `{"err":"a: EOF\nmultiple Read calls return no data or error",` +
			`"err_chain":["EOF\nmultiple Read calls return no data or error",["EOF"],["multiple Read calls return no data or error"]]`,
		ErrorObject: `{"err":{"Type":"*fmt.wrapError","Message":"a: EOF\nmultiple Read calls return no data or error",` +
			`"Inner":{"Type":"*errors.joinError","Message":"EOF\nmultiple Read calls return no data or error",` +
			`"Inner":[{"Type":"*errors.errorString","Message":"EOF"},{"Type":"*errors.errorString","Message":"multiple Read calls return no data or error"}]}}`,
		ErrorException: `{"err":{"Type":"*fmt.wrapError","Message":"a: EOF\nmultiple Read calls return no data or error",` +
			`"InnerException":{"Type":"*errors.joinError","Message":"EOF\nmultiple Read calls return no data or error",` +
			`"InnerExceptions":[{"Type":"*errors.errorString","Message":"EOF"},{"Type":"*errors.errorString","Message":"multiple Read calls return no data or error"}]}}`,
	} {
		v := NewValues(Style{Errors: form})
		if got := string(v.AppendError([]byte("{"), nil, "err", err)); got != want {
			t.Errorf("%d: got %s\nwant %s", form, got, want)
		}
		if got := string(v.AppendMember([]byte("{"), nil, "l", slog.AnyValue([]any{io.EOF}))); got != `{"l":["EOF"]` {
			t.Errorf("%d: got %s", form, got)
		}
	}
}

// A value in a list or map of any type is written like a value that is an attribute.
func TestAppendValueOfNestedValues(t *testing.T) {
	v := NewValues(Style{Duration: DurationText})
	cyclic := map[string]any{}
	cyclic["self"] = cyclic
	deep := any("x")
	for range 100 {
		deep = []any{deep}
	}
	for _, tt := range []struct {
		v    any
		want string
	}{
		{[]any{time.Second, errors.New("e\""), nil, math.NaN(), "s", 1, map[string]any{"b": time.Minute, "a": []any{}}}, `["1s","e\"",null,"NaN","s",1,{"a":[],"b":"1m0s"}]`},
		{map[string]error{"b": errors.New("m"), "a": nil}, `{"a":null,"b":"m"}`},
		{map[string]time.Duration{"x\"": 1}, `{"x\"":"1ns"}`},
		{[]any(nil), `null`}, {map[string]any(nil), `null`},
		{[]any{[]any(nil), []any{[]time.Duration{1}}}, `[null,[["1ns"]]]`},
		{deep, strings.Repeat("[", 100) + `"x"` + strings.Repeat("]", 100)},
	} {
		if got := string(v.AppendMember([]byte{'{'}, nil, "k", slog.AnyValue(tt.v))); got != `{"k":`+tt.want {
			t.Errorf("%v: got %s, want %s", tt.v, got, tt.want)
		}
		if got := string(v.AppendText(nil, nil, slog.AnyValue(tt.v))); got != tt.want {
			t.Errorf("%v: text %s, want %s", tt.v, got, tt.want)
		}
	}
	if got := string(v.AppendText(nil, nil, slog.AnyValue(cyclic))); !strings.Contains(got, "!ERROR") {
		t.Errorf("got %.100s", got)
	}
}

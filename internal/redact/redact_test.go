package redact

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/internal/values"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func rules(t testing.TB, c Config) *Rules {
	t.Helper()
	r, faults := New(c)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return r
}

func TestAnEmptyConfigHasNoRules(t *testing.T) {
	if r, faults := New(Config{}); r != nil || faults != nil {
		t.Error(r, faults)
	}
}

func TestUnescapeReadsJSONAndGoQuoting(t *testing.T) {
	for in, want := range map[string]string{
		`plain`: `plain`, `a\"b\\c\/d`: `a"b\c/d`, `\n\t\r\b\f`: "\n\t\r\b\f", `\u0070\u00e9`: `pé`, `\ud83d\ude00`: "😀",
		`\ud83d`: "\ufffd", `\ud83dx\u0041`: "\ufffdxA", `\x41\U0001f600`: "A😀", `\u12`: "u12", `\`: `\`, `a\`: `a\`, `\u`: "u", `\101`: "A",
	} {
		if got := unescape(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
	for _, s := range []string{"a\x00\x7f\"\\b", "\u2028é😀", "tab\tnl\n"} {
		for _, quoted := range []string{strconv.Quote(s), string(must(json.Marshal(s)))} {
			if got := unescape(quoted[1 : len(quoted)-1]); got != s {
				t.Errorf("%s: %q, want %q", quoted, got, s)
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestFoldIgnoresCase(t *testing.T) {
	for _, same := range [][2]string{{"PassWord", "password"}, {"\u212aey", "key"}, {"pa\u017f\u017fword", "PASSWORD"}, {"GRÖßE", "größe"}, {"ΣΟΣ", "σος"}} {
		if a, b := string(fold(nil, same[0])), string(fold(nil, same[1])); a != b {
			t.Errorf("%q is folded to %q, %q to %q", same[0], a, same[1], b)
		}
	}
	if string(fold(nil, "a_b")) == string(fold(nil, "a-b")) {
		t.Error("what differs in more than capitals is the same")
	}
}

// encoding/json and package fluent write a redacted struct with the same field names and options as
// the struct.
func TestReplacedStructKeepsNamesOfEachForm(t *testing.T) {
	type In struct {
		A int    `json:"a"`
		B string `json:"x"`
	}
	type Ptr struct {
		P int
		A string `json:"q,omitempty" fluent:"-"`
	}
	type outer struct {
		In
		*Ptr
		A      int               `json:"y" msg:"m"`
		Z      []int             `json:",omitempty"`
		Dash   int               `json:"-x"`
		Hidden int               `json:"-"`
		None   int               `json:"-" codec:"c"`
		Quoted int               `json:"quoted,string"`
		When   struct{}          `json:"when,omitzero"`
		M      map[string]string `json:"m"`
	}
	r := rules(t, Config{Keys: []string{"secret"}})
	w := Walker{rules: r}
	for _, v := range []any{
		outer{M: map[string]string{"secret": "s", "b": "c"}, Quoted: 3},
		&outer{Ptr: &Ptr{P: 1, A: "b"}, Z: []int{1}, Dash: 2, M: map[string]string{"secret": "s", "b": "c"}},
	} {
		out, changed := w.redactAny(v, span{})
		if !changed {
			t.Fatal("it is not changed")
		}
		want := strings.ReplaceAll(string(must(json.Marshal(v))), `"secret":"s"`, `"secret":"[redacted]"`)
		// The map is the last field, and its keys are sorted in both results.
		if got := string(must(json.Marshal(out))); got != want {
			t.Errorf("%s, want\n%s", got, want)
		}
		if !slices.ContainsFunc(out.(values.Object), func(m values.Member) bool { return m.Key == "c" && m.Field.In(true) && !m.Field.In(false) }) {
			t.Errorf("a field of package fluent is missing in %v", out)
		}
	}
}

// mayMatch returns false for types in which no rule can match. It handles recursive types and
// concurrent calls.
func TestTypesWithoutMatchingFieldsAreNotExamined(t *testing.T) {
	type tree struct {
		Left, Right *tree
		Next        []tree
		Secret      map[string]*tree
	}
	r := rules(t, Config{Keys: []string{"secret"}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got := r.With(nil, []slog.Attr{slog.Any("t", &tree{Next: []tree{{Secret: map[string]*tree{"x": nil}}}})})
			if s := string(must(json.Marshal(got[0].Value.Any()))); !strings.Contains(s, `"Secret":"[redacted]"`) {
				t.Error(s)
			}
		})
	}
	wg.Wait()
	for _, x := range []any{1, []float64{1}, struct{ A, B int }{}, [3]bool{}, map[string]int{}} {
		mayMatch := r.mayMatch(values.ShapeOf(reflect.TypeOf(x)))
		if _, isMap := x.(map[string]int); mayMatch != isMap {
			t.Errorf("%T: mayMatch %v", x, mayMatch)
		}
	}
}

// JSON stays valid, the values of names that a rule matches are removed, and a text without such
// names does not change.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		`{"pin":1}`, `[{"a":"b","pin":{"x":[1]}}]`, `"pin":"`, `"{\"pin\":1}"`, `{"pin":`, `"`, `\"`, `{"a":{"pin":"` + "\xff" + `"}}`, `"pin" : x"`, `{"p\u0069n":1}`,
		`{"a":"\u007b\"pin\":1}"}`, "'pin': 1", `5" "pin":[1,2`, `{"pin":"a"`, "{\"a\":1e5,\"b\":true}",
	} {
		f.Add(s)
	}
	named := rules(f, Config{Keys: []string{"pin"}, Paths: []string{"a.*.b"}})
	other := rules(f, Config{Keys: []string{"no such name"}})
	digits := rules(f, Config{Patterns: []*regexp.Regexp{regexp.MustCompile(`7`)}})
	f.Fuzz(func(t *testing.T, s string) {
		got := named.String(s)
		if json.Valid([]byte(s)) && (strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[")) && !json.Valid([]byte(got)) {
			t.Errorf("%q became %q", s, got)
		}
		if again := named.String(got); again != got && json.Valid([]byte(s)) {
			t.Errorf("%q became %q, and then %q", s, got, again)
		}
		if i := strings.Index(s, `"pin":"secret"`); i >= 0 && strings.Contains(got, `"pin":"secret"`) {
			t.Errorf("%q became %q", s, got)
		}
		if got := other.String(s); got != s {
			t.Errorf("%q became %q without a rule for it", s, got)
		}
		if got := digits.String(s); strings.Contains(got, "7") {
			t.Errorf("%q became %q", s, got)
		}
	})
}

// The number of active path nodes is bounded, regardless of the number of paths and the depth of a
// value.
func TestManyPathsDoNotMultiplyNodes(t *testing.T) {
	type node struct {
		Next *node `json:"next"`
		List []*node
		X    int
	}
	var list any = 1
	chain := &node{}
	for range 900 {
		list = []any{list}
	}
	for range 300 {
		chain = &node{Next: chain, List: []*node{{}}}
	}
	r := rules(t, Config{Paths: []string{"*.*.*.*.*.*.x", "v.next.next.next.x", "l.*.*.*.*.x"}, Keys: []string{"next.next.y", "list.x.z"}})
	var w Walker
	w.Record(r, nil, "m", []slog.Attr{slog.Any("l", list), slog.Any("v", chain), slog.String("j", strings.Repeat("[", 900)+`"x"`+strings.Repeat("]", 900))})
	if n := cap(w.nodes); n > 1<<15 {
		t.Errorf("%d nodes", n)
	}
}

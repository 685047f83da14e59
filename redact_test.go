package forebay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/loki"
)

// loggedJSON returns the JSON that a Router with these options writes when the function log uses it,
// without time and level.
func loggedJSON(t testing.TB, log func(l *slog.Logger), opts ...forebay.Option) string {
	t.Helper()
	var buf bytes.Buffer
	enc := encode.JSON(&encode.Options{TimeKey: "-", LevelKey: "-"})
	r, err := forebay.NewRouter(append(opts, forebay.Route(enc, forebay.Writer(&buf, forebay.Direct())))...)
	if err != nil {
		t.Fatal(err)
	}
	log(slog.New(r))
	return strings.TrimSuffix(buf.String(), "\n")
}

// info returns a function that logs the attributes args with the message m.
func info(args ...any) func(l *slog.Logger) { return func(l *slog.Logger) { l.Info("m", args...) } }

func TestRedactKeys(t *testing.T) {
	type user struct {
		ID   int    `json:"id"`
		Pin  int    `json:"pin"`
		Name string `json:"name,omitempty"`
		N    int    `json:"n,string"`
	}
	for _, c := range []struct {
		keys string
		log  func(l *slog.Logger)
		want string
	}{
		{"pin", info("PIN", 1, "pins", 2, "a.pin", 3, "pin.b", 4, "apin", 5), `{"msg":"m","PIN":"[redacted]","pins":2,"a.pin":"[redacted]","pin.b":"[redacted]","apin":5}`},
		{"pin", info(slog.Group("pin", "a", 1), slog.Group("g", "pin", nil)), `{"msg":"m","pin":"[redacted]","g":{"pin":"[redacted]"}}`},
		{"pin", info("u", user{1, 2, "", 3}), `{"msg":"m","u":{"id":1,"pin":"[redacted]","n":"3"}}`},
		{"name", info("u", user{1, 2, "", 3}), `{"msg":"m","u":{"id":1,"pin":2,"n":"3"}}`},
		{"n", info("u", []*user{nil, {1, 2, "x", 3}}), `{"msg":"m","u":[null,{"id":1,"pin":2,"name":"x","n":"[redacted]"}]}`},
		{"pin", info("m", map[string]int{"pin": 1}, "l", []any{map[string]any{"Pin": nil}, 2}), `{"msg":"m","m":{"pin":"[redacted]"},"l":[{"Pin":"[redacted]"},2]}`},
		{"pin", func(l *slog.Logger) {
			l.WithGroup("g").With("pin", 1, "a", 2).WithGroup("h").Info("m", "pin", 3, "b", 4)
		}, `{"msg":"m","g":{"pin":"[redacted]","a":2,"h":{"pin":"[redacted]","b":4}}}`},
		{"pin", func(l *slog.Logger) {
			l.WithGroup("Pin").With("a", 1).WithGroup("h").Info("m", "b", slog.GroupValue(slog.Int("c", 1)))
		}, `{"msg":"m","Pin":{"a":"[redacted]","h":{"b":"[redacted]"}}}`},
		{"größe", info("GRÖSSE", 1, "GRÖßE", 2), `{"msg":"m","GRÖSSE":1,"GRÖßE":"[redacted]"}`},
		{"key", info("\u212aey", 1), `{"msg":"m","` + "\u212a" + `ey":"[redacted]"}`},
		{strings.Repeat("k", 200), info(strings.Repeat("K", 200), 1, strings.Repeat("k", 201), 2), `{"msg":"m","` + strings.Repeat("K", 200) + `":"[redacted]","` + strings.Repeat("k", 201) + `":2}`},
		{"user.pin", info("pin", 1, slog.Group("user", "pin", 2, "a", map[string]int{"user.pin": 3, "pin": 4}), slog.Group("x", slog.Group("USER", "pin", 5))),
			`{"msg":"m","pin":1,"user":{"pin":"[redacted]","a":{"pin":4,"user.pin":"[redacted]"}},"x":{"USER":{"pin":"[redacted]"}}}`},
		{"pin", info("a", `{"pin": [1, {"a":2}], "b":"\"pin\":"}`), `{"msg":"m","a":"{\"pin\": \"[redacted]\", \"b\":\"\\\"pin\\\":\\\"[redacted]\\\"\"}"}`},
		{"*pin", info("userPIN", 1, "pins", 2, "pin", 3, "m", map[string]int{"a_pin": 4}, "u", user{ID: 1}), `{"msg":"m","userPIN":"[redacted]","pins":2,"pin":"[redacted]","m":{"a_pin":"[redacted]"},"u":{"id":1,"pin":"[redacted]","n":"0"}}`},
		{"PIN*", info("userPIN", 1, "pins", 2, "a.pin_b.c", 3), `{"msg":"m","userPIN":1,"pins":"[redacted]","a.pin_b.c":"[redacted]"}`},
		{"*pin*", info("a", `{"xpins": 1, "pi":2}`, "b", 2, "spinning", 3), `{"msg":"m","a":"{\"xpins\": \"[redacted]\", \"pi\":2}","b":2,"spinning":"[redacted]"}`},
		{"pin", info("a", `say "pin": now`, "b", `"pin"`, "c", `pin: 1`), `{"msg":"m","a":"say \"pin\": \"[redacted]\"","b":"\"pin\"","c":"pin: 1"}`},
	} {
		if got := loggedJSON(t, c.log, forebay.RedactKeys(c.keys)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.keys, got, c.want)
		}
	}
}

func TestRedactPaths(t *testing.T) {
	type in struct {
		Password string `json:"password"`
	}
	type out struct {
		User in
		in
		Ptr *in `json:"ptr"`
	}
	for _, c := range []struct {
		path string
		log  func(l *slog.Logger)
		want string
	}{
		{"user.password", info("password", 1, "user.password", 2, slog.Group("user", "password", 3, "x", 4), slog.Group("a", slog.Group("user", "password", 5))),
			`{"msg":"m","password":1,"user.password":"[redacted]","user":{"password":"[redacted]","x":4},"a":{"user":{"password":5}}}`},
		{"user", info(slog.Group("user", "a", 1), "b", map[string]int{"user": 2}), `{"msg":"m","user":"[redacted]","b":{"user":2}}`},
		{"http.*.authorization", info(slog.Group("http", slog.Group("a", "Authorization", 1), "authorization", 2, "b", map[string]any{"authorization": 3, "c": map[string]int{"authorization": 4}})),
			`{"msg":"m","http":{"a":{"Authorization":"[redacted]"},"authorization":2,"b":{"authorization":"[redacted]","c":{"authorization":4}}}}`},
		{"g.h.a", func(l *slog.Logger) {
			l.WithGroup("g").With("a", 1, slog.Group("h", "a", 2)).WithGroup("H").With("a", 3).Info("m", "a", 4, "b", 5)
		}, `{"msg":"m","g":{"a":1,"h":{"a":"[redacted]"},"H":{"a":"[redacted]","a":"[redacted]","b":5}}}`},
		{"g", func(l *slog.Logger) { l.WithGroup("g").With("a", 1).Info("m", "b", 2) }, `{"msg":"m","g":{"a":"[redacted]","b":"[redacted]"}}`},
		{"o.user.password", info("o", out{in{"a"}, in{"b"}, &in{"c"}}), `{"msg":"m","o":{"User":{"password":"[redacted]"},"password":"b","ptr":{"password":"c"}}}`},
		{"o.password", info("o", &out{in{"a"}, in{"b"}, nil}), `{"msg":"m","o":{"User":{"password":"a"},"password":"[redacted]","ptr":null}}`},
		{"o.*.password", info("o", []out{{in{"a"}, in{"b"}, nil}}), `{"msg":"m","o":[{"User":{"password":"[redacted]"},"password":"[redacted]","ptr":null}]}`},
		{"l.*", info("l", []int{1, 2}, "m", 3), `{"msg":"m","l":["[redacted]","[redacted]"],"m":3}`},
		{"l.a", info("l", []any{map[string]int{"a": 1, "b": 2}}), `{"msg":"m","l":[{"a":"[redacted]","b":2}]}`},
		{"*", info("a", 1, slog.Group("", "b", 2), slog.Group("c", "d", 3)), `{"msg":"m","a":"[redacted]","b":"[redacted]","c":"[redacted]"}`},
		{"body.a.b", info("body", `{"a":{"b":1,"c":[2]},"b":3}`), `{"msg":"m","body":"{\"a\":{\"b\":\"[redacted]\",\"c\":[2]},\"b\":3}"}`},
		{"body.a.*", info("body", json.RawMessage(`{"a":[1,{"b":2}],"c":3}`)), `{"msg":"m","body":{"a":["[redacted]","[redacted]"],"c":3}}`},
		{"body.a.b", info("body", `cut {"b":1,"c":2`), `{"msg":"m","body":"cut {\"b\":\"[redacted]\",\"c\":2"}`},
		{"body.a.*", info("body", `cut {"a":{"b":1},"c":2`), `{"msg":"m","body":"cut {\"a\":\"[redacted]\",\"c\":2"}`},
		{"a.b.c.d", info("a.b", map[string]any{"c.d": 1, "c": map[string]int{"d": 2, "e": 3}}), `{"msg":"m","a.b":{"c":{"d":"[redacted]","e":3},"c.d":"[redacted]"}}`},
	} {
		if got := loggedJSON(t, c.log, forebay.RedactPaths(c.path)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.path, got, c.want)
		}
	}
}

func TestRedactPattern(t *testing.T) {
	card := regexp.MustCompile(`\b\d{16}\b`)
	for _, c := range []struct {
		log  func(l *slog.Logger)
		want string
	}{
		{func(l *slog.Logger) { l.Info("card 4111111111111111, 4111111111111112") }, `{"msg":"card [redacted], [redacted]"}`},
		{info("i", int64(4111111111111111), "u", uint64(4111111111111111), "f", 4111111111111111.0, "n", 12, "nan", math.NaN()), `{"msg":"m","i":"[redacted]","u":"[redacted]","f":"[redacted]","n":12,"nan":"NaN"}`},
		{info("l", []int64{1, 4111111111111111}, "j", json.Number("4111111111111111"), "m", map[uint64]uint64{4111111111111111: 4111111111111111}), `{"msg":"m","l":[1,"[redacted]"],"j":"[redacted]","m":{"[redacted]":"[redacted]"}}`},
		{info("r", json.RawMessage(`[4111111111111111,"a 4111111111111111",{"4111111111111111":"\u0034111111111111111"}]`)), `{"msg":"m","r":["[redacted]","a [redacted]",{"[redacted]":"[redacted]"}]}`},
		{info("m", map[string]int{"4111111111111111": 1}), `{"msg":"m","m":{"[redacted]":1}}`},
		{info("4111111111111111", 1, slog.Group("4111111111111111", "a", 1)), `{"msg":"m","[redacted]":1,"[redacted]":{"a":1}}`},
		{info("d", time.Duration(4111111111111111), "t", time.Time{}, "b", true), `{"msg":"m","d":4111111111111111,"t":"0001-01-01T00:00:00.000000000Z","b":true}`},
	} {
		if got := loggedJSON(t, c.log, forebay.RedactPattern(card)); got != c.want {
			t.Errorf("\n%s, want\n%s", got, c.want)
		}
	}
	// If a match spans several JSON tokens, the value becomes a string. Keys that are equal after
	// redaction get different suffixes.
	if got, want := loggedJSON(t, info("r", json.RawMessage(`{"a":"b"}`)), forebay.RedactPattern(regexp.MustCompile(`"a":"b"`))), `{"msg":"m","r":"{[redacted]}"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := loggedJSON(t, info("m", map[string]int{"x1": 1, "x2": 1}), forebay.RedactPattern(regexp.MustCompile(`x\d`))); got != `{"msg":"m","m":{"[redacted]":1,"[redacted]#2":1}}` {
		t.Error(got)
	}
	// The patterns are applied in the order of the options. Empty matches, such as those of \b, are
	// ignored.
	if got := loggedJSON(t, info("a", "one two"), forebay.RedactPattern(regexp.MustCompile(`\b`)), forebay.RedactPattern(regexp.MustCompile(`one`)), forebay.RedactPattern(regexp.MustCompile(`\[redacted\] two`))); got != `{"msg":"m","a":"[redacted]"}` {
		t.Error(got)
	}
}

func TestReplaceAttr(t *testing.T) {
	var offered []string
	note := forebay.ReplaceAttr(func(groups []string, a slog.Attr) slog.Attr {
		offered = append(offered, fmt.Sprintf("%q %s", groups, a))
		switch a.Key {
		case "gone":
			return slog.Attr{}
		case "renamed":
			return slog.Int("pin", 1)
		case "made":
			return slog.Group("pins", "pin", 1, "gone", 2)
		case "logValuer":
			return slog.Any("logValuer", logValuer{slog.StringValue("resolved")})
		case "panics":
			panic("no 1234")
		case slog.MessageKey:
			return slog.String("x", strings.ToUpper(a.Value.String()))
		}
		return a
	})
	got := loggedJSON(t, func(l *slog.Logger) {
		l.With("gone", 0).With("w", 1).WithGroup("g").Info("message", "gone", 1, "renamed", 2, "made", 3, "logValuer", 4, "panics", 5,
			slog.Group("h", "gone", 6), slog.Group("", "i", 7), "lv", logValuer{slog.GroupValue(slog.Int("gone", 8), slog.Int("j", 9))},
			"o", appender{[]slog.Attr{slog.Int("gone", 1), slog.Int("k", 2)}}, "pin", 3, "u", plainUser{"gone", "x"})
	}, note, forebay.RedactKeys("pin"), forebay.RedactPattern(regexp.MustCompile(`\d{4}`)))
	want := `{"msg":"MESSAGE","w":1,"g":{"pin":"[redacted]","pins":{"pin":"[redacted]"},"logValuer":"resolved","panics":"!PANIC: no [redacted]",` +
		`"i":7,"lv":{"j":9},"o":{"k":2},"pin":"[redacted]","u":{"Name":"gone","Password":"x"}}}`
	if got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	wantOffered := `[] gone=0; [] w=1; [] msg=message; ["g"] gone=1; ["g"] renamed=2; ["g"] made=3; ["g" "pins"] pin=[redacted]; ["g" "pins"] gone=2; ` +
		`["g"] logValuer=4; ["g"] panics=5; ["g" "h"] gone=6; ["g"] i=7; ["g" "lv"] gone=8; ["g" "lv"] j=9; ["g"] o={[{gone {[] 1 4}} {k {[] 2 4}}]}; ["g" "o"] gone=1; ["g" "o"] k=2; ` +
		`["g"] pin=[redacted]; ["g"] u={gone x}`
	if got := strings.Join(offered, "; "); got != wantOffered {
		t.Errorf("offered %s, want\n%s", got, wantOffered)
	}
	// If a function returns an empty attribute for the message, the message becomes empty.
	// Functions are called in the order of the options.
	add := func(s string) forebay.Option {
		return forebay.ReplaceAttr(func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.MessageKey {
				return slog.Attr{}
			}
			return slog.String(a.Key, a.Value.String()+s)
		})
	}
	if got := loggedJSON(t, info("a", "x"), add("1"), add("2")); got != `{"msg":"","a":"x12"}` {
		t.Error(got)
	}
}

// With rules that match nothing, and with functions that change nothing, a Router passes
// testing/slogtest.
func TestSlogtestWithRedaction(t *testing.T) {
	for _, opts := range [][]forebay.Option{
		{forebay.RedactKeys("nothing", "no.thing"), forebay.RedactPaths("x.*.y"), forebay.RedactPattern(regexp.MustCompile(`q{9}`))},
		{forebay.ReplaceAttr(func(_ []string, a slog.Attr) slog.Attr { return a })},
	} {
		var buf bytes.Buffer
		slogtest.Run(t, func(t *testing.T) slog.Handler {
			buf.Reset()
			r, err := forebay.NewRouter(append(opts, forebay.Route(encode.JSON(nil), forebay.Writer(&buf, forebay.Direct())))...)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}, func(t *testing.T) map[string]any {
			var m map[string]any
			if err := json.Unmarshal(buf.Bytes(), &m); err != nil {
				t.Fatal(err)
			}
			return m
		})
	}
}

// Attributes outside and inside open groups are redacted.
func TestRedactionOutsideGroups(t *testing.T) {
	from := forebay.Context(func(_ context.Context, dst []slog.Attr) []slog.Attr {
		return append(dst, slog.String("token", "t"), slog.Group("g", "pin", 1, "c", 2))
	})
	var groups []string
	got := loggedJSON(t, func(l *slog.Logger) {
		l.With("pin", 1).WithGroup("g").With("pin", 2, "a", 3).WithGroup("h").InfoContext(context.Background(), "m", "pin", 4, "b", 5)
	}, from, forebay.RedactKeys("token"), forebay.RedactPaths("g.pin", "g.h.pin", "g.c"), forebay.ReplaceAttr(func(g []string, a slog.Attr) slog.Attr {
		groups = append(groups, strings.Join(append(g, a.Key), "."))
		return a
	}))
	want := `{"msg":"m","pin":1,"token":"[redacted]","g":{"pin":"[redacted]","c":"[redacted]"},"g":{"pin":"[redacted]","a":3,"h":{"pin":"[redacted]","b":5}}}`
	if got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if got := strings.Join(groups, " "); got != "pin g.pin g.a msg token g.pin g.c g.pin g.a g.h.pin g.h.b" {
		t.Error(got)
	}
}

func TestRedactionErrorsNameRule(t *testing.T) {
	out := forebay.Route(encode.JSON(nil), forebay.Writer(io.Discard, forebay.Direct()))
	raw, err := deliver.NewOutput(deliver.ToWriter(io.Discard), &deliver.OutputOptions{Codec: encode.RawCodec()})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for _, c := range []struct {
		opt  forebay.Option
		want string
	}{
		{forebay.RedactKeys("a", ""), `redaction: RedactKeys: "": it is empty; leave it out`},
		{forebay.RedactKeys("a..b"), `redaction: RedactKeys: "a..b": a part of it is empty; leave out the dot`},
		{forebay.RedactKeys("a.*"), `redaction: RedactKeys: "a.*": only RedactPaths allows a * for a whole name`},
		{forebay.RedactKeys("*"), `redaction: RedactKeys: "*": only RedactPaths allows a * for a whole name`},
		{forebay.RedactKeys("a*b"), `redaction: RedactKeys: "a*b": a * within a name; RedactKeys accepts one at the beginning or end of a key without dots, as in *token`},
		{forebay.RedactPaths(".a"), `redaction: RedactPaths: ".a": a part of it is empty; leave out the dot`},
		{forebay.RedactPaths("a.b*"), `redaction: RedactPaths: "a.b*": a * within a name; RedactKeys accepts one at the beginning or end of a key without dots, as in *token`},
		{forebay.RedactPattern(nil), `redaction: RedactPattern: expression 1 is nil`},
		{forebay.RedactPattern(regexp.MustCompile(`a*`)), `redaction: RedactPattern: "a*" matches the empty text; write an expression for at least one character`},
		{forebay.ReplaceAttr(nil), `redaction: ReplaceAttr: function 1 is nil`},
	} {
		if _, err := forebay.NewRouter(out, c.opt); err == nil || err.Error() != "forebay: cannot make router: "+c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	_, err = forebay.NewRouter(forebay.RedactKeys(""), forebay.RedactPattern(nil))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not all faults: %v", err)
	}
	// Lines of unknown content cannot be redacted, so NewRouter returns an error.
	for _, route := range []forebay.Option{
		forebay.Route(encode.Console(nil), forebay.Writer(raw)),
		forebay.Route(rawEncoder{encode.JSON(nil)}, forebay.Writer(io.Discard, forebay.Direct())),
	} {
		if _, err := forebay.NewRouter(route); err != nil {
			t.Error(err)
		}
		if _, err := forebay.NewRouter(route, forebay.RedactKeys("a")); err == nil || !strings.Contains(err.Error(), "cannot be redacted") {
			t.Errorf("lines as they come, with redaction: %v", err)
		}
	}
	if _, err := forebay.NewRouter(out, forebay.RedactKeys(), forebay.RedactPaths()); err != nil {
		t.Error(err)
	}
}

// A rawEncoder is an encoder with the codec of lines of unknown content.
type rawEncoder struct{ encode.Encoder }

func (rawEncoder) Codec() batch.Codec { return encode.RawCodec() }

// An endless value contains itself.
type endless struct {
	Next *endless
	Map  map[string]any
	V    slog.LogValuer
}

func (e endless) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("again", e), slog.Any("more", e))
}

// Values that contain themselves, and methods that panic or never end, do not crash the program.
// The record is logged without the secret.
func TestRedactionOfEndlessValuesEnds(t *testing.T) {
	race.Skip(t)
	cyclic := &endless{}
	cyclic.Next = cyclic
	loop := map[string]any{"s": secret}
	loop["loop"] = loop
	list := []any{secret, nil}
	list[1] = list
	type self *self
	var p self
	p = &p
	deepList := any(secret)
	for range 2000 {
		deepList = []any{deepList}
	}
	groups := slog.StringValue(secret)
	for range 200 {
		groups = slog.GroupValue(slog.Any("g", groups))
	}
	chain := errors.New(secret)
	for range 50 {
		chain = hiding{chain}
	}
	nested := secret
	for range 12 {
		nested = fmt.Sprintf("%q", nested)
	}
	for name, v := range map[string]any{
		"pointer": cyclic, "map": loop, "list": list, "pointer to itself": p, "deep list": deepList, "deep groups": groups,
		"deep chain": chain, "deeply quoted": nested,
		"attribute in a list": []any{slog.Any("a", deepList), slog.Any("b", manyPaths(30)), slog.String("c", secret), map[string]any{"d": secret}},
		"LogValuer in a list": []any{endless{}, secret}, "appender": &selfAppender{}, "shared": manyPaths(30),
	} {
		for _, opt := range []forebay.Option{forebay.RedactKeys("password"), forebay.RedactPattern(secretPattern)} {
			got := loggedJSON(t, info("v", v, "after", "here"), opt, forebay.RedactPattern(secretPattern))
			if leak([]byte(got)) != "" || !strings.HasSuffix(got, `"after":"here"}`) {
				t.Errorf("%s: %.300s", name, got)
			}
		}
	}
}

// A selfAppender is an appender whose attributes contain the selfAppender itself.
type selfAppender struct{}

func (s *selfAppender) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.Any("again", s), slog.Any("more", s), slog.String("s", secret))
}

// manyPaths returns a value with few pointers, in which the secret is reached on 2^n paths.
func manyPaths(n int) any {
	v := any(secret)
	for range n {
		v = []any{v, v}
	}
	return v
}

// A goexiter is a value whose methods call runtime.Goexit.
type goexiter struct{}

func (goexiter) LogValue() slog.Value { runtime.Goexit(); return slog.Value{} }

// If a method of a value calls runtime.Goexit during redaction, the record is logged without its
// content.
func TestGoexitDuringRedactionWithholdsRecord(t *testing.T) {
	for _, routes := range []int{1, 2} {
		var buf bytes.Buffer
		events := make(chan batch.Event, 10)
		opts := []forebay.Option{forebay.RedactPattern(secretPattern), forebay.OnError(func(ev batch.Event) { events <- ev })}
		for range routes {
			opts = append(opts, forebay.Route(noTime, forebay.Writer(&buf, forebay.Direct())))
		}
		r, err := forebay.NewRouter(opts...)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { r.Logger().Info(secret, slog.String("a", secret), slog.Any("v", goexiter{})) })
		wg.Wait()
		want := strings.Repeat(`{"level":"INFO","msg":"[redacted]","redaction":"!ERROR: withheld, because its redaction did not end"}`+"\n", routes)
		if buf.String() != want {
			t.Errorf("%s, want %s", buf.String(), want)
		}
		if ev := <-events; ev.Op != "panic" || ev.Output != "redaction" {
			t.Errorf("%v", ev)
		}
		r.Logger().Info("after")
		if !strings.Contains(buf.String(), `"msg":"after"`) {
			t.Error("nothing is logged afterwards")
		}
	}
}

// LogValue is called once, and each route receives its result.
func TestRedactionIsOnceForAllRoutes(t *testing.T) {
	var one, two bytes.Buffer
	r, err := forebay.NewRouter(forebay.RedactKeys("x"), forebay.Route(noTime, forebay.Writer(&one, forebay.Direct())), forebay.Route(noTime, forebay.Writer(&two, forebay.Direct())))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	v := counting(func() slog.Value { n++; return slog.GroupValue(slog.Int("n", n), slog.Any("in", slog.IntValue(n))) })
	slog.New(r).Info("m", "v", v, slog.Group("g", "v", v))
	want := `{"level":"INFO","msg":"m","v":{"n":1,"in":1},"g":{"v":{"n":2,"in":2}}}` + "\n"
	if one.String() != want || two.String() != want {
		t.Errorf("%s%s, want %s", one.String(), two.String(), want)
	}
}

type counting func() slog.Value

func (c counting) LogValue() slog.Value { return c() }

// Redaction does not change values of the caller.
func TestRedactionLeavesValuesAlone(t *testing.T) {
	m := map[string]any{"password": "p", "l": []any{"p", map[string]string{"password": "p"}}}
	u := &plainUser{"p", "p"}
	h := http.Header{"Password": {"p"}}
	attrs := []slog.Attr{slog.String("password", "p"), slog.Group("g", "password", "p")}
	b := []byte("p")
	before := fmt.Sprint(m, u, h, attrs, b)
	got := loggedJSON(t, func(l *slog.Logger) {
		l.Info("m", "m", m, "u", u, "h", h, "g", slog.GroupValue(attrs...), "b", b)
		slog.New(l.Handler().WithAttrs(attrs)).LogAttrs(context.Background(), slog.LevelInfo, "m", attrs...)
	}, forebay.RedactKeys("password"), forebay.RedactPattern(regexp.MustCompile("p$")))
	if after := fmt.Sprint(m, u, h, attrs, b); after != before || strings.Contains(got, `"p"`) {
		t.Errorf("%s, was %s; %s", after, before, got)
	}
}

// A redacted error is replaced by an error whose methods return redacted texts.
func TestRedactedErrors(t *testing.T) {
	var got error
	spy := forebay.Route(spyEncoder{encode.JSON(nil), func(r *encode.Record) { got, _ = r.Attrs[0].Value.Any().(error) }}, forebay.Writer(io.Discard, forebay.Direct()))
	r, err := forebay.NewRouter(forebay.RedactPattern(secretPattern), spy)
	if err != nil {
		t.Fatal(err)
	}
	inner := &fieldError{secret, nil}
	slog.New(r).Info("m", "err", fmt.Errorf("outer: %w", errors.Join(io.EOF, stackError{inner, secret})))
	if got == nil || got.Error() != "outer: EOF\nwrong password [redacted]" {
		t.Fatal(got)
	}
	var fe *fieldError
	if errors.As(got, &fe) || errors.Is(got, inner) || leak([]byte(fmt.Sprintf("%v %+v %#v %q %s", got, got, got, got, got))) != "" {
		t.Errorf("the error leads to the one in whose place it is: %#v", got)
	}
	n := 0
	var look func(err error)
	look = func(err error) {
		n++
		if leak([]byte(err.Error())) != "" {
			t.Error(err)
		}
		if s, ok := err.(interface{ StackTrace() string }); ok && s.StackTrace() != "main.login([redacted])" {
			t.Error(s.StackTrace())
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			if next := e.Unwrap(); next != nil {
				look(next)
			}
		case interface{ Unwrap() []error }:
			for _, next := range e.Unwrap() {
				look(next)
			}
		}
	}
	if look(got); n != 5 {
		t.Errorf("a chain of %d errors", n)
	}
}

// A redacted error is written like the original, with its type, in every encoding. Only the secret
// differs.
func TestRedactedErrorsKeepTypes(t *testing.T) {
	const secret, hidden = "4111-1111x", "[redacted]" // of equal length, so that binary encodings are comparable
	inner := &fieldError{secret, nil}
	all := map[string]error{
		"plain": errors.New(secret), "pointer": inner, "wrapped": fmt.Errorf("outer: %w", inner), "joined": errors.Join(io.EOF, inner),
		"stack": stackError{inner, secret}, "calls": pcError{inner}, "stack in list": errors.Join(pcError{inner}, stackError{inner, secret}),
		"calls of list": pcError{errors.Join(inner)}, "unwrap panics": &unwrapPanic{secret}, "nil": (*fieldError)(nil), "within": unwrapTo{secret, (*fieldError)(nil)},
	}
	plain, redacted := views(t), views(t, forebay.RedactPattern(regexp.MustCompile(secret)))
	for name, err := range all {
		for i, v := range plain {
			r := slog.NewRecord(time.Unix(1e9, 0), slog.LevelInfo, "m", 0)
			r.AddAttrs(slog.Any("err", err))
			v.Handle(t.Context(), r)
			redacted[i].Handle(t.Context(), r)
			was, got := v.take(), redacted[i].take()
			if want := strings.ReplaceAll(was, secret, hidden); got != want || was == "" {
				t.Errorf("%s, %s:\n got %s\nwant %s", v.name, name, got, want)
			}
			for _, ours := range []string{"redact.", "values."} {
				if strings.Contains(was+got, ours) {
					t.Errorf("%s, %s: a type of this module is named: %s", v.name, name, was+got)
				}
			}
		}
	}
}

type unwrapPanic struct{ text string }

func (e *unwrapPanic) Error() string { return e.text }
func (e *unwrapPanic) Unwrap() error { panic(e.text) }

type unwrapTo struct {
	text string
	next error
}

func (e unwrapTo) Error() string { return e.text }
func (e unwrapTo) Unwrap() error { return e.next }

// A spyEncoder passes each record to the function see.
type spyEncoder struct {
	encode.Encoder
	see func(*encode.Record)
}

func (s spyEncoder) Scope() encode.Scope { return spyScope{s.Encoder.Scope(), s.see} }

type spyScope struct {
	encode.Scope
	see func(*encode.Record)
}

func (s spyScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	s.see(r)
	return s.Scope.Append(dst, r)
}

// Redaction applies to lines and labels of Loki.
func TestLokiRedacts(t *testing.T) {
	var mu sync.Mutex
	var got []byte
	d, err := loki.New(loki.Config{
		URL:  "http://loki.test",
		Wire: "json",
		HTTP: httpclient.Options{Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			b, err := io.ReadAll(r.Body)
			got = append(got, b...)
			return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, err
		})}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h, err := forebay.NewRouter(forebay.To(d), forebay.RedactKeys("password"))
	if err != nil {
		t.Fatal(err)
	}
	slog.New(h).Info("m", "password", secret)
	if _, err := h.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if !bytes.Contains(got, []byte("[redacted]")) || leak(got) != "" {
		t.Errorf("%s", got)
	}
}

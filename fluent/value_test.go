package fluent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/internal/values"
)

// encoded encodes v as a Forward record and returns the record as JSON.
func encoded(t *testing.T, v any) string {
	t.Helper()
	s := borrow(1<<20, timeText)
	defer s.free()
	mp, err := s.record(nil, v, "message")
	if err != nil {
		t.Fatalf("%T: %v", v, err)
	}
	if ok, err := msgpack.IsClean(mp); !ok || err != nil {
		t.Fatalf("%T: %x is not clean: %v", v, mp, err)
	}
	js, _, err := msgpack.AppendJSON(nil, mp)
	if err != nil {
		t.Fatal(err)
	}
	return string(js)
}

func equalJSON(a, b string) bool {
	var x, y any
	da, db := json.NewDecoder(strings.NewReader(a)), json.NewDecoder(strings.NewReader(b))
	da.UseNumber()
	db.UseNumber()
	return da.Decode(&x) == nil && db.Decode(&y) == nil && reflect.DeepEqual(x, y)
}

type (
	named    string
	level    int
	inner    struct{ A, B int }
	Embedded struct {
		ID   string `json:"id"`
		Deep int
	}
	hidden struct{ Shown string }
	Tagged struct {
		Fluent  string `fluent:"f" json:"j" msgpack:"m"`
		Pack    string `msgpack:"p" json:"j2"`
		Msg     string `msg:"g"`
		JSON    string `json:"js,omitempty"`
		Skip    string `fluent:"-" json:"seen"`
		private int
	}
	outer struct {
		Embedded
		*hidden
		inner `fluent:",inline"`
		Named inner `fluent:"named"`
		Flat  inner `fluent:",inline"`
		Deep  string
		Extra map[string]int `fluent:",inline"`
	}
	msgpTime  struct{ at time.Time }
	jsonSelf  struct{ n int }
	textSelf  struct{ s string }
	pointed   struct{ s string }
	describe  struct{ A int }
	panicking struct{}
	valuerT   struct{ n int }
	endless   struct{}
	node      struct {
		Name string
		Next *node
	}
)

func (l level) String() string { return fmt.Sprintf("level-%d", int(l)) }
func (j jsonSelf) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"n":[%d,null,"x\u00e9"]}`, j.n), nil
}
func (x textSelf) MarshalText() ([]byte, error) { return []byte("text " + x.s), nil }
func (x *pointed) MarshalText() ([]byte, error) { return []byte("pointed " + x.s), nil }
func (d describe) String() string               { return "described" }
func (panicking) Error() string                 { panic("boom") }
func (v valuerT) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("n", v.n), slog.Group("g", slog.String("s", "x")), slog.Group("empty"), slog.Attr{})
}
func (endless) LogValue() slog.Value { return slog.GroupValue(slog.Any("more", endless{})) }
func (m *msgpTime) MarshalMsg(b []byte) ([]byte, error) {
	b = append(b, 0x81, 0xa1, 't', 0xc7, 12, 5)
	b = append(b, make([]byte, 4)...)
	s := uint32(m.at.Unix())
	return append(b, byte(s>>24), byte(s>>16), byte(s>>8), byte(s), 0, 0, 0, 7), nil
}

func ptr[T any](v T) *T { return &v }

func TestValueEncodings(t *testing.T) {
	at := time.Date(2026, 3, 19, 12, 34, 56, 123456789, time.FixedZone("", 3600))
	var nilMap map[string]any
	var nilStruct *Tagged
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, `{}`},
		{nilMap, `{}`},
		{nilStruct, `{}`},
		{"text", `{"message":"text"}`},
		{named("n"), `{"message":"n"}`},
		{42, `{"message":42}`},
		{[]int{1, 2}, `{"message":[1,2]}`},
		{errors.New("oops"), `{"message":"oops"}`},
		{at, `{"message":"2026-03-19T11:34:56.123456789Z"}`},
		{level(3), `{"message":3}`},
		{describe{5}, `{"A":5}`},
		{map[string]any{"d": describe{5}}, `{"d":{"A":5}}`},
		{map[string]any{"a": nil, "b": true, "c": -1.5, "d": []byte("hi"), "e": named("n"), "f": []any{1, "x", nil}}, `{"a":null,"b":true,"c":-1.5,"d":"aGk=","e":"n","f":[1,"x",null]}`},
		{map[string]string{"a": "b"}, `{"a":"b"}`},
		{map[named]int{"k": 1}, `{"k":1}`},
		{map[int]string{-7: "x"}, `{"-7":"x"}`},
		{map[uint8]string{7: "x"}, `{"7":"x"}`},
		{map[any]any{1: 1, "s": 2, true: 3, netip.MustParseAddr("::1"): 4}, `{"1":1,"s":2,"true":3,"::1":4}`},
		{map[float64]int{1.5: 1}, `{"1.5":1}`},
		{map[textSelf]int{{"k"}: 1}, `{"text k":1}`},
		{Tagged{"a", "b", "c", "", "e", 1}, `{"f":"a","p":"b","g":"c"}`},
		{&Tagged{JSON: "x"}, `{"f":"","p":"","g":"","js":"x"}`},
		{outer{Embedded: Embedded{"i", 1}, inner: inner{1, 2}, Flat: inner{3, 4}, Named: inner{5, 6}, Deep: "d", Extra: map[string]int{"x": 9}},
			`{"id":"i","named":{"A":5,"B":6},"Deep":"d","x":9}`}, // A and B are ambiguous, so encoding/json omits them
		{outer{hidden: &hidden{"h"}}, `{"id":"","Shown":"h","named":{"A":0,"B":0},"Deep":""}`},
		{struct {
			D  time.Duration
			T  time.Time
			P  *time.Time
			Z  *int
			PP **int
			N  float64
			I  float32
			C  complex128
			Ch chan int
			F  func()
		}{time.Second, at, &at, nil, ptr(ptr(5)), math.NaN(), float32(math.Inf(-1)), 1 + 2i, nil, nil},
			`{"D":1000000000,"T":"2026-03-19T11:34:56.123456789Z","P":"2026-03-19T11:34:56.123456789Z","Z":null,"PP":5,"N":"NaN","I":"-Inf","C":"(1+2i)",
			"Ch":"!ERROR:json: unsupported type: chan int","F":"!ERROR:json: unsupported type: func()"}`},
		{struct {
			E error
			S fmt.Stringer
			J json.Marshaler
			X textSelf
			P pointed
			Q *pointed
		}{errors.New("e"), level(1), jsonSelf{2}, textSelf{"x"}, pointed{"p"}, &pointed{"q"}},
			`{"E":"e","S":1,"J":{"n":[2,null,"xé"]},"X":"text x","P":{},"Q":"pointed q"}`},
		{&struct{ P pointed }{pointed{"p"}}, `{"P":"pointed p"}`},
		{struct{ E error }{panicking{}}, `{"E":"!PANIC: boom"}`},
		{struct {
			N json.Number
			R json.RawMessage
			A any
			B [2]bool
			U uint64
		}{"12.50", json.RawMessage(`{"x": [1]}`), map[string]any{"k": 1}, [2]bool{true, false}, math.MaxUint64},
			`{"N":12.5,"R":{"x":[1]},"A":{"k":1},"B":[true,false],"U":18446744073709551615}`},
		{struct {
			I int       `json:"i,string"`
			B bool      `json:"b,string"`
			F float64   `json:"f,string"`
			Z time.Time `json:"z,omitzero"`
		}{1, true, 1.5, time.Time{}}, `{"i":"1","b":"true","f":"1.5"}`},
		{valuerT{4}, `{"n":4,"g":{"s":"x"}}`},
		{map[string]any{"v": valuerT{4}}, `{"v":{"n":4,"g":{"s":"x"}}}`},
		{slog.GroupValue(slog.Int("a", 1)), `{"a":1}`},
		{&msgpTime{time.Unix(1, 0)}, `{"t":"` + time.Unix(1, 7).Format(time.RFC3339Nano) + `"}`},
		{map[string]any{"ip": net.IPv4(1, 2, 3, 4), "u": url.URL{Scheme: "http", Host: "h"}, "up": &url.URL{Scheme: "http", Host: "h"}},
			`{"ip":"1.2.3.4","u":{"Scheme":"http","Opaque":"","User":null,"Host":"h","Path":"","Fragment":"","RawQuery":"","RawPath":"","RawFragment":"","ForceQuery":false,"OmitHost":false},"up":{"Scheme":"http","Opaque":"","User":null,"Host":"h","Path":"","Fragment":"","RawQuery":"","RawPath":"","RawFragment":"","ForceQuery":false,"OmitHost":false}}`},
		{map[string]any{"bad\xff": "x\xfe"}, "{\"bad\ufffd\":\"x\ufffd\"}"},
	} {
		if got := encoded(t, c.v); !equalJSON(got, c.want) {
			t.Errorf("%T:\n got %s\nwant %s", c.v, got, c.want)
		}
	}
}

// Field names, embedded structs and options follow the rules of encoding/json.
func TestFieldNamesMatchEncodingJSON(t *testing.T) {
	type L2 struct{ X, Y int }
	type L1 struct {
		L2
		Y int
		Z int `json:"z"`
	}
	type M1 struct{ Y int }
	type N1 struct {
		W string `json:"w"`
	}
	type N2 struct{ W string }
	type mine struct{ Q int }
	for _, v := range []any{
		struct {
			L1
			M1
			N1
			N2
		}{L1{L2{1, 2}, 3, 4}, M1{5}, N1{"a"}, N2{"b"}},
		struct {
			*L1
			X string
		}{nil, "x"},
		struct {
			mine
			L1 `json:"named"`
		}{mine{7}, L1{}},
		struct {
			A int            `json:",omitempty"`
			B []int          `json:",omitempty"`
			C *int           `json:",omitempty"`
			D struct{}       `json:",omitempty"`
			E [0]int         `json:",omitempty"`
			F map[string]int `json:"f,omitempty"`
		}{},
		node{"a", &node{"b", nil}},
	} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := encoded(t, v); !equalJSON(got, string(want)) {
			t.Errorf("%T:\n got %s\nwant %s", v, got, want)
		}
	}
}

func TestEventTimeOnlyForFieldsOfTheRecord(t *testing.T) {
	at := time.Unix(1, 2)
	s := borrow(1<<20, timeEvent)
	defer s.free()
	for _, v := range []any{
		map[string]any{"t": at, "n": map[string]any{"t": at}},
		&struct {
			T time.Time      `json:"t"`
			N map[string]any `json:"n"`
		}{at, map[string]any{"t": at}},
	} {
		mp, err := s.record(nil, v, "m")
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(mp), "\xd7\x00\x00\x00\x00\x01\x00\x00\x00\x02"); n != 1 {
			t.Errorf("%T: %d EventTimes in %x", v, n, mp)
		}
	}
}

func TestCyclesAndDepthAreErrors(t *testing.T) {
	m := map[string]any{}
	m["self"] = m
	list := []any{nil}
	list[0] = list
	ring := &node{"a", nil}
	ring.Next = ring
	type P *P
	var p P
	p = &p
	type S []S
	sl := S{nil}
	sl[0] = sl
	deep := any("x")
	for range 500 {
		deep = []any{deep}
	}
	wide := map[string]any{}
	wide["a"], wide["b"] = wide, wide
	for _, c := range []struct {
		name string
		v    any
		want error
	}{
		{"map", m, values.ErrCycle}, {"slice", map[string]any{"l": list}, values.ErrCycle}, {"pointer", ring, values.ErrCycle}, {"type P *P", p, values.ErrCycle},
		{"type S []S", sl, values.ErrCycle}, {"deep", deep, values.ErrDepth}, {"wide", wide, values.ErrCycle}, {"LogValuer", endless{}, ErrValue},
	} {
		_, err := AppendEvent(nil, time.Now(), c.v)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	_, err := AppendEvent(nil, time.Now(), map[string]any{"a": map[string]any{"b": ring}})
	if err == nil || !strings.Contains(err.Error(), "a.b.Next") {
		t.Errorf("the error has no path: %v", err)
	}
	// A map that occurs twice in a value is not a cycle.
	one := &node{Name: "n"}
	if got := encoded(t, []*node{one, one}); !strings.Contains(got, "[{") {
		t.Error(got)
	}
}

// A mapModifier is a value that calls its field do while it is encoded. The function modifies the
// map that contains the value.
type mapModifier struct{ do func() }

func (m mapModifier) MarshalText() ([]byte, error) { m.do(); return []byte("done"), nil }

// byPointer is like a mapModifier, but its method has a pointer receiver. Maps of such values are
// encoded by different code.
type byPointer struct{ do func() }

func (m *byPointer) MarshalText() ([]byte, error) { return nil, nil }
func (m byPointer) LogValue() slog.Value          { m.do(); return slog.StringValue("done") }

// Encoding a map fails if the map gains or loses members during the call. Otherwise the header
// would contain a wrong number of members, and the server could not parse later records.
func TestMapModifiedDuringEncodingIsAnError(t *testing.T) {
	const n = 8
	changed := 0
	for round := range 100 {
		change := func(clear func(), add func(int)) func() {
			return func() {
				switch round % 4 {
				case 0:
					for i := range 100 {
						add(i)
					}
				case 1:
					clear()
				case 2: // remove one member and add another one
					clear()
					for i := range n {
						add(i)
					}
				}
			}
		}
		m := map[string]any{}
		k := map[int]any{}
		p := map[int]byPointer{}
		type rest struct {
			M map[int]any `fluent:",inline"`
		}
		dm := change(func() { clear(m) }, func(i int) { m[strconv.Itoa(-i)] = i })
		dk := change(func() { clear(k) }, func(i int) { k[-i-1] = i })
		dp := change(func() { clear(p) }, func(i int) { p[-i-1] = byPointer{func() {}} })
		for i := range n {
			m[strconv.Itoa(100+i)], k[i], p[i] = i, i, byPointer{func() {}}
		}
		m["x"], k[n], p[n] = mapModifier{dm}, mapModifier{dk}, byPointer{dp}
		for _, v := range []any{m, p, rest{k}, map[string]any{"in": m}} {
			mp, err := AppendEvent(nil, time.Now(), v)
			if err != nil {
				if changed++; !errors.Is(err, values.ErrChanged) || round%4 == 3 {
					t.Fatalf("%T: %v", v, err)
				}
				continue
			}
			if _, err := msgpack.IsClean(mp); err != nil {
				t.Fatalf("%T: %x: %v", v, mp, err)
			}
		}
	}
	if changed < 50 {
		t.Errorf("only %d of 400 maps changed during encoding", changed)
	}
}

// Encoding fails for a value with 2^60 shared parts. Otherwise it would practically never end.
func TestSharedValuesAreBounded(t *testing.T) {
	v := any(map[string]any{"x": 1})
	for range 60 {
		v = []any{v, v}
	}
	s := borrow(1<<20, timeText)
	defer s.free()
	if _, err := s.record(nil, v, "m"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("2^60 values: %v", err)
	}
}

type benchRecord struct {
	ID, Name, Host, Path, Agent, Method string
	Status, Size, Port, PID             int
	Elapsed                             float64
	Cached                              bool
	At                                  time.Time
	Tags                                []string
	Sub                                 inner
	Ref                                 *inner
}

func TestEncodingAllocatesNothing(t *testing.T) {
	race.Skip(t)
	rec := benchRecord{ID: "abc", Status: 200, At: time.Now(), Tags: []string{"a", "b"}, Ref: &inner{1, 2}}
	wide := map[string]any{}
	for i := range 26 {
		wide[string(rune('a'+i))] = "value"
	}
	wide["n"], wide["f"], wide["at"], wide["rec"] = 5, 1.5, rec.At, rec
	dst := make([]byte, 0, 4096)
	for name, v := range map[string]any{"struct": rec, "pointer": &rec, "map": wide, "strings": map[string]string{"a": "b"}, "text": "x"} {
		n := allocs.PerRun(200, func() {
			var err error
			if dst, err = AppendEvent(dst[:0], rec.At, v); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestCodecWritesEntriesAsJSON(t *testing.T) {
	id, err := new(valuer).streamOf("app.test")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := AppendEvent(nil, time.Unix(1, 5), map[string]any{"a": 1})
	if err != nil {
		t.Fatal(err)
	}
	c := Codec()
	m := metaOf(id)
	for _, tc := range []struct{ rec, want string }{
		{string(entry), `{"tag":"app.test","time":"1970-01-01T00:00:01.000000005Z","record":{"a":1}}`},
		{"\x92\x05\x80", `{"tag":"app.test","time":"1970-01-01T00:00:05Z","record":{}}`},
		{"\x92\x05", `{"raw":"kgU=","encoding":"base64"}`},
		{string(entry) + "x", ""},
		{"", `{"raw":"","encoding":"base64"}`},
		{string(c.AppendMarker(nil, batch.Drops{3, 0, 1}, time.Unix(1, 0))),
			`{"tag":"app.test","time":"1970-01-01T00:00:01Z","record":{"level":"WARN","msg":"records dropped","dropped":4,"reasons":{"full":3,"encode":1}}}`},
	} {
		got := string(c.AppendJSON(nil, []byte(tc.rec), m))
		if tc.want != "" && got != tc.want || !json.Valid([]byte(got)) {
			t.Errorf("%x:\n got %s\nwant %s", tc.rec, got, tc.want)
		}
	}
	if got := string(c.AppendJSON(nil, entry, metaOf(0))); strings.Contains(got, "tag") {
		t.Errorf("%s", got)
	}
}

// If the protocol cannot represent the time of an event, posting or appending the event is an
// error, which is counted. If such a time is a field of the record, it is written as text.
func TestTimesOutOfRangeAreErrors(t *testing.T) {
	enc, err := NewEncoder(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		t  time.Time
		ok bool
	}{
		{time.Unix(-1, 999_999_999), false},
		{time.Unix(0, 0), true},
		{time.Unix(maxSeconds, 999_999_999), true},
		{time.Unix(maxSeconds+1, 0), false},
		{time.Unix(1<<40, 0), false},
	} {
		for _, integer := range []bool{false, true} {
			var r received
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
			l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, IntegerTime: integer, TimeFields: timeEvent}})
			err := l.PostWithTime("t", c.t, map[string]any{"n": 1})
			if (err == nil) != c.ok || !c.ok && !errors.Is(err, ErrValue) {
				t.Errorf("%v: %v", c.t, err)
			}
			if err := l.Post("t", map[string]any{"n": 2, "at": c.t}); err != nil {
				t.Error(err)
			}
			rep := closeLogger(t, l)
			if want := uint64(2); c.ok && rep.Delivered != want || !c.ok && (rep.Delivered != want-1 || rep.Dropped[batch.Encode] != 1) {
				t.Errorf("%v: %s", c.t, rep.Account)
			}
			last := r.messages()[0].Entries
			text := string(Codec().AppendJSON(nil, last[len(last)-1], metaOf(0)))
			if want := c.t.UTC().Format("2006-01-02T15:04:05"); !strings.Contains(text, want) {
				t.Errorf("%s, want %s", text, want)
			}
		}
		if _, err := AppendEvent(nil, c.t, nil); (err == nil) != c.ok {
			t.Errorf("AppendEvent %v: %v", c.t, err)
		}
		if _, err := appendJSONEvent(nil, c.t, []byte("{}")); (err == nil) != c.ok {
			t.Errorf("appendJSONEvent %v: %v", c.t, err)
		}
		if _, _, err := enc.Scope().Append(nil, &encode.Record{Time: c.t}); (err == nil) != c.ok {
			t.Errorf("Append %v: %v", c.t, err)
		}
	}
}

func TestTagKeepsItsStream(t *testing.T) {
	a, err := new(valuer).streamOf("one")
	b := streamOf("two")
	again := streamOf("one")
	if err != nil || a != again || a == b || a < firstTag {
		t.Errorf("%d %d %d %v", a, b, again, err)
	}
	for _, bad := range []string{"", "a\nb", "\xff", strings.Repeat("x", maxTagBytes+1)} {
		if _, err := new(valuer).streamOf(bad); !errors.Is(err, ErrTag) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	d := dictionary{}
	def, ok := d.AppendStream(nil, a)
	if !ok || d.Stream(def) != a || d.Stream(nil) != noTag || d.Stream([]byte("\xff")) != invalidTag {
		t.Errorf("%q %v", def, ok)
	}
	if _, ok := d.AppendStream(nil, 1<<30); ok {
		t.Error("an id without a stream has a definition")
	}
	if n := allocs.PerRun(100, func() { streamOf("one") }); n != 0 {
		t.Errorf("looking up a tag: %v allocations", n)
	}
}

func FuzzRecordFromJSON(f *testing.F) {
	f.Add(`{"a":[1,2.5,"x",null,{"b":true}]}`)
	f.Add(`{"a":"` + strings.Repeat("held ", 200) + `","b":["` + strings.Repeat("not ", 200) + `"],"c":"\u00e4"}`)
	f.Fuzz(func(t *testing.T, js string) {
		var v map[string]any
		d := json.NewDecoder(strings.NewReader(js))
		d.UseNumber()
		if d.Decode(&v) != nil || v == nil {
			return
		}
		s := borrow(1<<20, timeText)
		defer s.free()
		mp, err := s.record(nil, v, "m")
		if err != nil {
			return
		}
		got, _, err := msgpack.AppendJSON(nil, mp)
		if err != nil {
			t.Fatal(err)
		}
		var want, have any
		norm, _ := json.Marshal(v)
		if json.Unmarshal(norm, &want) != nil { // a number that a float64 cannot represent
			return
		}
		if json.Unmarshal(got, &have) != nil || !reflect.DeepEqual(want, have) {
			t.Fatalf("%s became %s", norm, got)
		}
		h := borrow(1<<20, timeText)
		defer h.free()
		h.mem.canSplice = true
		if mp, err = h.record(nil, v, "m"); err == nil {
			mp = h.mem.insert(mp)
			got, _, err = msgpack.AppendJSON(nil, mp)
			h.mem.release(mp)
		}
		have = nil
		if err != nil || json.Unmarshal(got, &have) != nil || !reflect.DeepEqual(want, have) {
			t.Fatalf("%s became %s with spliced strings: %v", norm, got, err)
		}
	})
}

func BenchmarkAppendEvent(b *testing.B) {
	rec := benchRecord{ID: "abc", Name: "some name", Host: "host-1", Path: "/a/b/c", Status: 200, At: time.Now(), Tags: []string{"a", "b"}, Ref: &inner{1, 2}}
	wide := map[string]any{}
	for i := range 26 {
		wide["key_"+string(rune('a'+i))] = "value of it"
	}
	letters := map[string]any{} // 26 members with short keys
	for c := 'a'; c <= 'z'; c++ {
		letters[string(c)] = "value"
	}
	dst := make([]byte, 0, 4096)
	for _, c := range []struct {
		name string
		v    any
	}{{"letters", letters}, {"struct", rec}, {"pointer", &rec}, {"map26", wide}, {"count", map[string]any{"count": 1}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = AppendEvent(dst[:0], rec.At, c.v)
			}
		})
	}
}

func metaOf(stream uint32) batch.Meta { return batch.Meta{Stream: stream} }

// A field that exists in only one of the formats, JSON and MessagePack, is omitted in the other. In
// this test it is between fields that are read without reflection.
func TestFieldsOfOneFormatOnly(t *testing.T) {
	v := struct {
		A int
		B int `msgpack:"-"`
		C int
		D int `json:"-" msgpack:"d"`
		E int
	}{1, 2, 3, 4, 5}
	mp, err := AppendEvent(nil, time.Now(), v)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(Codec().AppendJSON(nil, mp, batch.Meta{})); !strings.HasSuffix(got, `{"A":1,"C":3,"E":5,"d":4}}`) {
		t.Errorf("MessagePack: %s", got)
	}
	js := values.NewValues(values.Style{}).AppendValue(nil, nil, slog.AnyValue(v))
	if got := string(js); got != `{"A":1,"B":2,"C":3,"E":5}` {
		t.Errorf("JSON: %s", got)
	}
}

// Struct fields that are read without reflection are encoded like those read with reflection. This
// holds for structs of any size, by value and by pointer, with zero and other values.
func TestDirectFieldsMatchReflection(t *testing.T) {
	type text string
	type one struct {
		B bool `json:"b"`
	}
	type word struct {
		S *string `json:"s"`
	}
	type small struct {
		I int `json:"i,omitempty"`
	}
	type all struct {
		one           // embedded struct
		S     string  `json:"s,omitempty"`
		T     text    `json:"t"`
		I     int     `json:"i,omitempty"`
		L     int64   `json:"l"`
		H     int16   `json:"h"`
		F     float64 `json:"f,omitempty"`
		Q     int     `json:"q,string"`
		Z     int     `json:"z,omitzero"`
		Small small   `json:"small"`
		P     *small  `json:"p"`
		A     any     `json:"a"`
		End   bool    `json:"end,omitempty"`
	}
	x := "x"
	for _, v := range []any{
		one{true}, word{&x}, word{}, small{}, small{3}, all{},
		all{one{true}, "s", "t", -1, 2, 3, 1.5, 4, 5, small{6}, &small{7}, small{8}, true},
		all{F: math.Copysign(0, -1), A: all{S: "in", A: word{&x}}, P: &small{}},
		[]all{{S: "a"}, {I: 1}}, map[string]all{"k": {T: "m"}}, [1]all{{End: true}},
	} {
		want, err := json.Marshal(map[string]any{"v": v})
		if err != nil {
			t.Fatal(err)
		}
		p := reflect.New(reflect.TypeOf(v))
		p.Elem().Set(reflect.ValueOf(v))
		for _, v := range []any{v, p.Interface()} {
			if got := encoded(t, map[string]any{"v": v}); !equalJSON(got, string(want)) {
				t.Errorf("%T:\n got %s\nwant %s", v, got, want)
			}
		}
	}
}

// deepJSON and deepMsg have marshal methods that return values with the given number of levels.
type (
	deepJSON int
	deepMsg  int
)

func (d deepJSON) MarshalJSON() ([]byte, error) {
	return []byte(strings.Repeat("[", int(d)) + strings.Repeat("]", int(d))), nil
}

func (d deepMsg) MarshalMsg(dst []byte) ([]byte, error) {
	return append(append(dst, bytes.Repeat([]byte{0x91}, int(d))...), 1), nil
}

// nest returns v inside n lists and maps.
func nest(n int, v any) any {
	for range n {
		v = []any{v}
	}
	return v
}

// No entry has more than 31 levels, which is the limit of Fluent Bit. Deeper values become JSON
// text. This applies to every kind of nested value.
func TestNestingStaysWithinTheLimitOfFluentBit(t *testing.T) {
	const limit = 31
	check := func(what string, e []byte, err error) {
		t.Helper()
		if err != nil {
			if !errors.Is(err, ErrValue) {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		if n := msgpack.Nested(e, 200); n > limit {
			t.Errorf("%s: %d levels", what, n)
		}
		if rest, err := msgpack.Skip(e); err != nil || len(rest) > 0 {
			t.Errorf("%s: %v, %d bytes follow the entry", what, err, len(rest))
		}
		if _, ok := appendEntryJSON(nil, e); !ok {
			t.Errorf("%s: the value is not JSON text", what)
		}
	}
	for n := range 126 {
		for _, in := range []any{
			1, []string{"a"}, map[string]string{"a": "b"}, []int{}, map[string]int{"a": 1}, struct{ A int }{1}, json.RawMessage(`{"a":[{}]}`),
			deepJSON(1), deepJSON(40), deepJSON(9000), deepMsg(1), deepMsg(40), deepMsg(120), deepMsg(9000), slog.GroupValue(slog.Int("a", 1)),
		} {
			e, err := AppendEvent(nil, time.Unix(1, 0), map[string]any{"d": nest(n, in)})
			check(fmt.Sprintf("%d levels and %T(%v)", n, in, in), e, err)
		}
		js := `{"a":` + strings.Repeat("[", n) + "1" + strings.Repeat("]", n) + "}"
		e, err := appendJSONEvent(nil, time.Unix(1, 0), []byte(js))
		check("JSON", e, err)
		enc, err := NewEncoder(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := enc.Scope()
		for range n {
			s = s.WithGroup("g")
		}
		s = s.WithAttrs([]slog.Attr{slog.Any("w", nest(n, 1))})
		e, _, err = s.Append(nil, &encode.Record{Time: time.Unix(1, 0), Attrs: []slog.Attr{slog.Any("a", deepJSON(n)), slog.Any("b", nest(n, 1))}})
		check("slog", e, err)
	}
	// A value with exactly the maximum number of levels is unchanged.
	e, err := AppendEvent(nil, time.Unix(1, 0), map[string]any{"d": nest(29, 1)})
	if err != nil || msgpack.Nested(e, 99) != limit || bytes.Contains(e, []byte("[1]")) {
		t.Errorf("%x: %v", e, err)
	}
	if e, err = AppendEvent(nil, time.Unix(1, 0), map[string]any{"d": nest(31, 1)}); err != nil || !bytes.Contains(e, []byte("[[1]]")) {
		t.Errorf("%x: %v", e, err)
	}
}

// An overwriter is a MarshalMsg method that can modify the memory that it receives.
type overwriter func(b []byte) []byte

func (o overwriter) MarshalMsg(b []byte) ([]byte, error) { return o(b), nil }

// A faulty MarshalMsg affects only its own value, because it receives no bytes of the entry.
func TestMarshalMsgCannotModifyTheEntry(t *testing.T) {
	kept := []byte{0xa1, 'k'}
	for name, tc := range map[string]struct {
		m    overwriter
		want string // beginning of the record
	}{
		"appends":        {func(b []byte) []byte { return append(b, 1) }, `1`},
		"grows":          {func(b []byte) []byte { return msgpack.AppendStr(b, strings.Repeat("x", 200_000)) }, `"xxx`},
		"its own memory": {func([]byte) []byte { return kept }, `"k"`},
		"copies":         {func(b []byte) []byte { return append(slices.Clone(b), 1) }, `1`},
		"overwrites": {func(b []byte) []byte {
			for i := range b {
				b[i] = 0xc1
			}
			return append(b, 1)
		}, `1`},
		"overwrites from the beginning": {func(b []byte) []byte { return append(b[:0], 1) }, `1`},
		"returns nothing":               {func([]byte) []byte { return nil }, `"!ERROR:MarshalMsg did not append exactly one`},
		"appends nothing":               {func(b []byte) []byte { return b }, `"!ERROR:MarshalMsg did not append exactly one`},
		"appends two":                   {func(b []byte) []byte { return append(b, 1, 2) }, `"!ERROR:MarshalMsg did not append exactly one`},
		"appends half":                  {func(b []byte) []byte { return append(b, 0x92, 1) }, `"!ERROR:MarshalMsg did not append exactly one`},
		"panics":                        {func(b []byte) []byte { panic("no") }, `"!PANIC: no"`},
	} {
		got := encoded(t, map[string]any{"v": tc.m})
		if !strings.HasPrefix(got, `{"v":`+tc.want) {
			t.Errorf("%s: %.100s", name, got)
		}
	}
	if string(kept) != "\xa1k" {
		t.Errorf("%q", kept)
	}
}

type cannotMarshal struct{ err error }

// A keyWithoutText is a key of a map that cannot be encoded.
type keyWithoutText struct{}

func (keyWithoutText) MarshalText() ([]byte, error) { return nil, errors.New("no text") }

func (c cannotMarshal) MarshalJSON() ([]byte, error) { return nil, c.err }

// Post returns an error and sends nothing if the event or a part of it cannot be encoded.
func TestPostOfUnencodableValueSendsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r received
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
		defer f.Close()
		l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}})
		cause := errors.New("no such value")
		values := []any{
			make(chan int), func() {}, unsafe.Pointer(nil), cannotMarshal{cause},
			map[string]any{"a": 1, "c": make(chan int)},
			map[string]any{"long": strings.Repeat("x", 4000), "deep": []any{map[string]any{"f": func() {}}}},
			struct{ Nil func() }{}, &struct{ C cannotMarshal }{cannotMarshal{cause}},
			map[keyWithoutText]int{{}: 1}, map[string]any{"m": map[any]int{keyWithoutText{}: 1}}, map[any]int{[1]chan int{}: 1},
		}
		for _, v := range values {
			if err := l.Post("x", v); !errors.Is(err, ErrValue) {
				t.Errorf("%T: %v", v, err)
			}
			if _, err := AppendEvent(nil, time.Now(), v); !errors.Is(err, ErrValue) {
				t.Errorf("AppendEvent of %T: %v", v, err)
			}
		}
		if err := l.Post("x", cannotMarshal{cause}); !errors.Is(err, cause) {
			t.Error(err)
		}
		if err := l.Post("x", map[string]any{"n": 1}); err != nil { // the pooled valuer contains nothing of the failed calls
			t.Error(err)
		}
		rep, err := l.Close(t.Context())
		if n := uint64(len(values) + 1); err != nil || rep.Delivered != 1 || rep.Dropped[batch.Encode] != n || rep.Check() != nil {
			t.Error(err, rep.Account)
		}
	})
}

package keyset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestAppendJSONMakesKeysUnique(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                      `{}`,
		`{"a":1,"b":2}`:                           `{"a":1,"b":2}`,
		`{"a":1,"a":2,"a":3}`:                     `{"a":1,"a_":2,"a__":3}`,
		`{"a":1,"a":2,"a_":3}`:                    `{"a":1,"a_":2,"a__":3}`,
		`{"a_":1,"a":2,"a":3}`:                    `{"a_":1,"a":2,"a__":3}`,
		`{ "a" : 1 , "a" : "x,\"a\"" }`:           `{ "a" : 1 , "a_" : "x,\"a\"" }`,
		`{"a":{"a":1,"b":1,"b":2},"b":1}`:         `{"a":{"a":1,"b":1,"b_":2},"b":1}`,
		`{"a":[{"a":1,"a":2},["a","a"]],"a":"a"}`: `{"a":[{"a":1,"a_":2},["a","a"]],"a_":"a"}`,
		`{"a":1,"\u0061":2}`:                      `{"a":1,"\u0061_":2}`,
		`{"a\\":1,"a\\":2}`:                       `{"a\\":1,"a\\_":2}`,
		`{"":1,"":2}`:                             `{"":1,"_":2}`,
		"{\"\xff\":1,\"\xfe\":2,\"\ufffd\":3}":    "{\"\xff\":1,\"\xfe_\":2,\"\ufffd__\":3}",
		`{"msg":"a","x":1}`:                       `{"message":"a","x":1}`,
		`{"x":1,"x":2,"msg":"a","x":3}`:           `{"x":1,"x_":2,"message":"a","x__":3}`,
		`{"msg":"a","message":"b"}`:               `{"msg":"a","message":"b"}`,
		`{"msg":"a","msg":"b"}`:                   `{"message":"a","msg_":"b"}`,
		`{"x":{"msg":"a"}}`:                       `{"x":{"msg":"a"}}`,
		`{"msg":"a","x":{"message":1}}`:           `{"message":"a","x":{"message":1}}`,
		`{"a":1,"a":`:                             `{"a":1,"a_":`,
		`{"a":1,"a`:                               `{"a":1,"a`,
		`{"a":1,"\u00":1}`:                        `{"a":1,"\u00":1}`,
		`}`:                                       `}`,
		``:                                        ``,
	} {
		var s Set
		for range 2 { // in the second round, the Set is reused
			if got := string(s.AppendJSON([]byte("x"), []byte(in), "msg", "message")); got != "x"+want {
				t.Errorf("%s: %s, want %s", in, got[1:], want)
			}
		}
	}
	if got := string(new(Set).AppendJSON(nil, []byte(`{"msg":1}`), "msg", "")); got != `{"msg":1}` {
		t.Error(got)
	}
}

// The time and memory for an object are proportional to its length, even if it has many keys or
// repeats one key.
func TestManyKeysNeedLinearTime(t *testing.T) {
	const n = 10_000
	for name, key := range map[string]func(i int) string{
		"different": func(i int) string { return fmt.Sprint("k", i) },
		"pairs":     func(i int) string { return fmt.Sprint("k", i/2) },
		"one":       func(int) string { return "k" },
	} {
		var in bytes.Buffer
		for i := range n {
			fmt.Fprintf(&in, `%c"%s":1`, "{,"[min(i, 1)], key(i))
		}
		in.WriteByte('}')
		var s Set
		out := s.AppendJSON(nil, in.Bytes(), "", "")
		var got map[string]int
		if err := json.Unmarshal(out, &got); err != nil || len(got) != n || len(out) > in.Len()+17*n {
			t.Errorf("%s: %d keys, %d bytes, %v", name, len(got), len(out), err)
		}
	}
}

func TestDeepNestingIsRejected(t *testing.T) {
	in := strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1)
	if got := string(new(Set).AppendJSON(nil, []byte(in), "", "")); got != in {
		t.Error("a text that is too deep is changed")
	}
}

func TestSetMakesNamesUnique(t *testing.T) {
	var s Set
	var with Keys
	s.Open(nil)
	name := func(key, want string) {
		t.Helper()
		if got := s.Name(key); got != want {
			t.Errorf("%s is called %s, want %s", key, got, want)
		}
	}
	name("a", "a")
	name("a", "a_")
	s.AppendTo(&with)
	s.Close()
	for range 2 {
		s.Open(&with)
		name("a", "a__")
		name("b", "b")
		s.Open(nil)
		name("a", "a")
		s.Close()
		s.Drop()
		name("b", "b")
		name("b", "b_")
		s.Close()
	}
	if n := testing.AllocsPerRun(100, func() {
		s.Open(&with)
		for _, key := range []string{"one", "two", "three"} {
			s.Name(key)
		}
		s.Close()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// AppendJSON returns an object with the same values and without duplicate keys.
func FuzzAppendJSON(f *testing.F) {
	f.Add([]byte(`{"a":1,"a":[{"b":1,"b":"\"}"}],"\u0061":{"msg":1}}`))
	f.Add([]byte(`{"msg":"\\","msg":"\\\"","x":[],"x":{}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		out := new(Set).AppendJSON(nil, in, "msg", "message")
		if valid := json.Valid(in); json.Valid(out) != valid || !valid {
			if valid {
				t.Fatalf("%q becomes %q", in, out)
			}
			return
		}
		if twice, values := examine(t, out); twice != "" || values != second(examine(t, in)) {
			t.Fatalf("%q becomes %q: %s", in, out, twice)
		}
	})
}

func second(_, b string) string { return b }

// examine returns a key that occurs twice in an object in js, or "". It also returns js without its
// keys.
func examine(t *testing.T, js []byte) (twice, values string) {
	d := json.NewDecoder(bytes.NewReader(js))
	d.UseNumber()
	var out strings.Builder
	type frame struct {
		keys map[string]bool
		key  bool
	}
	var stack []*frame
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return twice, out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		var in *frame
		if len(stack) > 0 {
			in = stack[len(stack)-1]
		}
		if s, ok := tok.(string); ok && in != nil && in.keys != nil && in.key {
			if in.key = false; in.keys[s] {
				twice = s
			}
			in.keys[s] = true
			continue
		}
		if in != nil {
			in.key = true
		}
		fmt.Fprintf(&out, "%T %v,", tok, tok)
		switch tok {
		case json.Delim('{'):
			stack = append(stack, &frame{map[string]bool{}, true})
		case json.Delim('['):
			stack = append(stack, &frame{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	in := []byte(`{"time":"2026-01-02T03:04:05.123456789Z","level":"INFO","msg":"request served","method":"GET","path":"/api/v1/items/42","status":200,"bytes":1534,"duration":1234567,"user":{"id":17,"name":"ann"},"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"}`)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	var s Set
	var out []byte
	for b.Loop() {
		out = s.AppendJSON(out[:0], in, "msg", "message")
	}
}

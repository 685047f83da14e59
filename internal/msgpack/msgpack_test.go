package msgpack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// AppendInt uses the shortest form of each integer, and Next reads it.
func TestIntegersAreShortest(t *testing.T) {
	for _, c := range []struct {
		v int64
		n int
	}{{0, 1}, {127, 1}, {128, 2}, {255, 2}, {256, 3}, {65535, 3}, {65536, 5}, {1<<32 - 1, 5}, {1 << 32, 9}, {math.MaxInt64, 9},
		{-1, 1}, {-32, 1}, {-33, 2}, {-128, 2}, {-129, 3}, {-32768, 3}, {-32769, 5}, {math.MinInt32, 5}, {math.MinInt32 - 1, 9}, {math.MinInt64, 9}} {
		b := AppendInt(nil, c.v)
		if len(b) != c.n {
			t.Errorf("%d takes %d bytes, want %d", c.v, len(b), c.n)
		}
		tok, rest, err := Next(b)
		if err != nil || len(rest) != 0 || int64(tok.Num) != c.v || (tok.Kind == Int) != (c.v < 0) {
			t.Errorf("%d is read as %+v, %v", c.v, tok, err)
		}
	}
}

// Strings, binary data, arrays and maps of each length have a header that Next reads. A prefix of a
// value returns ErrShort.
func TestLengthsOfStringsAndContainers(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536} {
		s := strings.Repeat("x", n)
		for _, b := range [][]byte{AppendStr(nil, s), AppendStrBytes(nil, []byte(s)), AppendBin(nil, []byte(s))} {
			tok, rest, err := Next(b)
			if err != nil || len(rest) != 0 || string(tok.Bytes) != s {
				t.Errorf("%d bytes: %v, %v", n, tok.Kind, err)
			}
			for cut := range min(len(b), 8) {
				if _, _, err := Next(b[:cut]); err != ErrShort {
					t.Errorf("%d bytes cut at %d: %v", n, cut, err)
				}
			}
		}
		for _, b := range [][]byte{AppendArrayHeader(nil, n), AppendMapHeader(nil, n)} {
			if tok, _, err := Next(b); err != nil || tok.Len != n {
				t.Errorf("header of %d: %+v, %v", n, tok, err)
			}
		}
	}
}

// AppendStr replaces invalid UTF-8 like encoding/json.
func TestInvalidUTF8IsReplacedAsInJSON(t *testing.T) {
	for _, s := range []string{"a\xffb", "\xff\xfe", "ok\xed\xa0\x80", "\ufffd\xff", "é\xc3"} {
		js, _ := json.Marshal(s)
		var want string
		json.Unmarshal(js, &want)
		for _, b := range [][]byte{AppendStr(nil, s), AppendStrBytes(nil, []byte(s))} {
			tok, rest, err := Next(b)
			if err != nil || len(rest) != 0 || string(tok.Bytes) != want {
				t.Errorf("%q became %q, want %q (%v)", s, tok.Bytes, want, err)
			}
		}
	}
}

// CloseMap uses the short header for small maps.
func TestCloseMapShortens(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 70000} {
		b := AppendOpenMap([]byte{cNil})
		for range n {
			b = append(b, 1, 2)
		}
		b = CloseMap(b, 1, n)
		tok, _, err := Next(b[1:])
		if err != nil || tok.Len != n || tok.Kind != Map {
			t.Fatalf("%d: %+v %v", n, tok, err)
		}
		if rest, err := Skip(b[1:]); err != nil || len(rest) != 0 {
			t.Fatalf("%d: %d bytes of rest, %v", n, len(rest), err)
		}
	}
}

// Deep nesting, lengths beyond the input and invalid bytes are errors.
func TestSkipIsBounded(t *testing.T) {
	deep := bytes.Repeat([]byte{0x91}, 100000)
	if _, err := Skip(append(deep, cNil)); err != ErrDepth {
		t.Errorf("deep: %v", err)
	}
	if _, err := Skip([]byte{cArray32, 0xff, 0xff, 0xff, 0xff}); err != ErrShort {
		t.Errorf("long array: %v", err)
	}
	if _, err := Skip([]byte{0xc1}); err != ErrInvalid {
		t.Errorf("0xc1: %v", err)
	}
	if _, _, err := AppendJSON(nil, append(deep, cNil)); err != ErrDepth {
		t.Errorf("deep to JSON: %v", err)
	}
	if _, _, err := AppendFromJSON(nil, bytes.Repeat([]byte{'['}, 100000)); err != ErrDepth {
		t.Errorf("deep from JSON: %v", err)
	}
}

// Values survive conversion from JSON to MessagePack and back.
func TestJSONRoundTrip(t *testing.T) {
	for _, js := range []string{
		`null`, `true`, `false`, `0`, `-1`, `1.5`, `1e300`, `18446744073709551615`, `-9223372036854775808`, `""`, `"a\nb"`, `[]`, `{}`,
		`{"a":[1,2,{"b":null}],"":"\u00e9\ud83d\ude00","q":"\"\\/\b\f\n\r\t\u0001"}`, ` { "a" : [ 1 , 2 ] } `,
		`[` + strings.Repeat(`1,`, 300) + `1]`, `-0`, `1E-7`, `123456789012345678901234567890`,
	} {
		mp, rest, err := AppendFromJSON(nil, []byte(js))
		if err != nil || len(space(rest)) != 0 {
			t.Errorf("%s: %v, rest %q", js, err, rest)
			continue
		}
		if ok, err := IsClean(mp); !ok || err != nil {
			t.Errorf("%s is not clean: %v", js, err)
		}
		back, rest, err := AppendJSON(nil, mp)
		if err != nil || len(rest) != 0 || !sameJSON(t, js, string(back)) {
			t.Errorf("%s became %s (%v)", js, back, err)
		}
	}
	for _, js := range []string{``, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `01`, `1.`, `1e`, `-`, `+1`, `nul`, `"a`, "\"\n\"", `"\x"`, `"\u12"`, `{1:2}`, `,`} {
		if _, rest, err := AppendFromJSON(nil, []byte(js)); err == nil && len(rest) == 0 {
			t.Errorf("%s: no error", js)
		}
	}
}

// sameJSON reports whether a and b are equal JSON values. b may also be the text of the one test
// value that no integer type can represent.
func sameJSON(t *testing.T, a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y) || reflect.DeepEqual(y, "123456789012345678901234567890")
}

// An unpaired surrogate becomes U+FFFD.
func TestSurrogatesAlone(t *testing.T) {
	mp, _, err := AppendFromJSON(nil, []byte(`"a\ud800b\udc00\ud83d\u0041"`))
	tok, _, _ := Next(mp)
	if err != nil || string(tok.Bytes) != "a\ufffdb\ufffd\ufffdA" {
		t.Errorf("%q, %v", tok.Bytes, err)
	}
}

// AppendClean makes each kind of unclean value clean.
func TestClean(t *testing.T) {
	unclean := AppendMapHeader(nil, 6)
	unclean = AppendStr(AppendInt(unclean, 7), "seven")
	unclean = AppendFloat64(AppendStr(unclean, "nan"), math.NaN())
	unclean = append(AppendStr(unclean, "msgp"), cExt8, 12, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2)
	unclean = append(AppendStr(unclean, "stamp"), cFixext4, 0xff, 0, 0, 0, 9)
	unclean = append(AppendStr(unclean, "other"), cFixext1, 77, 1)
	unclean = append(AppendStr(unclean, "bad"), 0xa1, 0xff)
	if ok, err := IsClean(unclean); ok || err != nil {
		t.Fatalf("IsClean of an unclean value is true (%v)", err)
	}
	out, rest, err := AppendClean(nil, unclean)
	if err != nil || len(rest) != 0 {
		t.Fatal(err)
	}
	if ok, err := IsClean(out); !ok || err != nil {
		t.Fatalf("the result is not clean: %v", err)
	}
	js, _, _ := AppendJSON(nil, out)
	var m map[string]any
	if err := json.Unmarshal(js, &m); err != nil {
		t.Fatal(err)
	}
	at, _ := time.Parse(time.RFC3339Nano, m["msgp"].(string))
	if m["7"] != "seven" || m["nan"] != "NaN" || !at.Equal(time.Unix(1, 2)) || m["bad"] != "\ufffd" || m["other"] != "AQ==" {
		t.Errorf("%s", js)
	}
}

// Skip, AppendJSON and AppendClean agree on which input is valid and on its length. AppendJSON
// writes valid JSON of limited size, and AppendClean writes a clean value.
func FuzzRead(f *testing.F) {
	f.Add([]byte{0x82, 0xa1, 'a', 0xd7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xa1, 'b', 0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0x81, 0x90, 0xc1})
	f.Add([]byte{0x81, 0x81, 0x81, 0x91, 0x81, 0xd4, 0x80, 0, 1, 0xc0, 0xc0, 0xc0, 0xc0})
	f.Fuzz(func(t *testing.T, b []byte) {
		rest, err := Skip(b)
		js, jrest, jerr := AppendJSON(nil, b)
		if (err == nil) != (jerr == nil) && !errors.Is(err, ErrDepth) && !errors.Is(jerr, ErrDepth) {
			t.Fatalf("Skip returns %v, AppendJSON %v", err, jerr)
		}
		if err != nil || jerr != nil {
			return
		}
		if len(rest) != len(jrest) {
			t.Fatalf("Skip returns a rest of %d bytes, AppendJSON of %d", len(rest), len(jrest))
		}
		if !json.Valid(js) || !utf8.Valid(js) {
			t.Fatalf("invalid JSON: %q", js)
		}
		if used := len(b) - len(rest); len(js) > maxGrowth*used {
			t.Fatalf("%d bytes of text for %d: %.200q", len(js), used, js)
		}
		out, crest, err := AppendClean(nil, b)
		if err != nil {
			return
		}
		if len(crest) != len(rest) {
			t.Fatalf("AppendClean returns a rest of %d bytes, Skip of %d", len(crest), len(rest))
		}
		if ok, err := IsClean(out); !ok || err != nil {
			t.Fatalf("not clean: %x, %v", out, err)
		}
		if used := len(b) - len(rest); len(out) > maxGrowth*used+4 {
			t.Fatalf("%d clean bytes for %d", len(out), used)
		}
	})
}

// Maps as keys of maps do not double the length of the text at each level.
func TestKeysWithinKeys(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"\x81\x92\x01\x02\x03", `{"[1,2]":3}`},
		{"\x81\x81\xa1a\x01\x03", `{"{\"a\":1}":3}`},
		{"\x81\x81\x92\x01\x02\x04\x03", `{"{\"kgEC\":4}":3}`},
		{"\x81\x91\x81\x92\x01\x02\x04\x03", `{"[{\"kgEC\":4}]":3}`},
	} {
		js, rest, err := AppendJSON(nil, []byte(tt.in))
		if string(js) != tt.want || len(rest) > 0 || err != nil {
			t.Errorf("%x: got %s, want %s; %v", tt.in, js, tt.want, err)
		}
	}
	for _, unit := range []string{"\x81", "\x91\x81", "\x81\x91"} {
		deep := strings.Repeat(unit, 200/len(unit))
		b := []byte(deep + strings.Repeat("\xc0", 1+len(deep)))
		js, _, err := AppendJSON(nil, b)
		if err != nil || len(js) > maxGrowth*len(b) || !json.Valid(js) {
			t.Errorf("%x: %d bytes of text for %d, %v", unit, len(js), len(b), err)
		}
		if out, _, err := AppendClean(nil, b); err != nil || len(out) > maxGrowth*len(b) {
			t.Errorf("%x: %d clean bytes for %d, %v", unit, len(out), len(b), err)
		}
	}
	// The byte sequence with the maximum growth.
	b := []byte("\x81\x81\xd4\x80\x00\x01\x01")
	if js, _, err := AppendJSON(nil, b); err != nil || len(js) > maxGrowth*len(b) {
		t.Errorf("%d bytes for %d: %s, %v", len(js), len(b), js, err)
	}
}

func FuzzFromJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,-2.5e3,"x\u00e9\\",null,true]}`))
	f.Fuzz(func(t *testing.T, js []byte) {
		mp, rest, err := AppendFromJSON(nil, js)
		ok := err == nil && len(space(rest)) == 0
		if err == ErrDepth {
			return
		}
		if ok != json.Valid(js) {
			t.Fatalf("%q: valid %v (%v), json.Valid %v", js, ok, err, json.Valid(js))
		}
		if !ok {
			return
		}
		if c, err := IsClean(mp); !c || err != nil {
			t.Fatalf("%q gives %x: %v", js, mp, err)
		}
		back, _, err := AppendJSON(nil, mp)
		if err != nil || !json.Valid(back) {
			t.Fatalf("%q became %q: %v", js, back, err)
		}
	})
}

// AppendStr copies short strings in words. At every length and capacity, and with a non-ASCII byte
// at every position, the result is right, and nothing is written past the end.
func TestShortStrings(t *testing.T) {
	slow := func(dst []byte, s string) []byte {
		s = string([]rune(s)) // each invalid byte becomes U+FFFD
		return append(AppendStrHeader(dst, len(s)), s...)
	}
	for n := range 20 {
		for place := -1; place < n; place++ {
			b := []byte("abcdefghijklmnopqrst")[:n]
			if place >= 0 {
				b[place] = 0xfe
			}
			s := string(b)
			want := slow([]byte("x"), s)
			for capacity := range 60 {
				mem := bytes.Repeat([]byte{'-'}, 80)
				mem[0] = 'x'
				if got := AppendStr(mem[:1:1+capacity], s); !bytes.Equal(got, want) {
					t.Fatalf("%q, capacity %d: %x, want %x", s, capacity, got, want)
				}
				if len(bytes.Trim(mem[1+capacity:], "-")) > 0 {
					t.Fatalf("%q, capacity %d: wrote past the end: %q", s, capacity, mem)
				}
				for _, other := range []string{"", "k", "value", "longer one", "ä", strings.Repeat("z", 17)} {
					for _, pair := range [][2]string{{s, other}, {other, s}} {
						mem := bytes.Repeat([]byte{'-'}, 80)
						mem[0] = 'x'
						want := slow(slow([]byte("x"), pair[0]), pair[1])
						if got := AppendStrs(mem[:1:1+capacity], pair[0], pair[1]); !bytes.Equal(got, want) {
							t.Fatalf("%q, capacity %d: %x, want %x", pair, capacity, got, want)
						}
						if len(bytes.Trim(mem[1+capacity:], "-")) > 0 {
							t.Fatalf("%q, capacity %d: wrote past the end: %q", pair, capacity, mem)
						}
					}
				}
			}
		}
	}
}

// A pairer writes the pairs that AppendMap passes to it and records the keys.
type pairer struct {
	keys []string
	err  error
}

func (p *pairer) AppendPair(dst []byte, k string, v any) ([]byte, error) {
	p.keys = append(p.keys, k)
	if s, ok := v.(string); ok {
		return AppendStr(AppendStr(dst, k), s), p.err
	}
	return AppendNil(AppendStr(dst, k)), p.err
}

// AppendMap writes the same bytes as AppendStr at every capacity and does not write past the end.
func TestAppendMap(t *testing.T) {
	texts := []any{7, -1 << (bits.UintSize - 24), nil, 2.5}
	for n := range 20 {
		for _, place := range []int{-1, 0, n / 2, n - 1} {
			b := []byte("abcdefghijklmnopqrst")[:n]
			if place >= 0 && place < n {
				b[place] = 0xfe
			}
			texts = append(texts, string(b))
		}
	}
	texts = append(texts, "ä", strings.Repeat("z", 300))
	for _, k := range texts {
		k, ok := k.(string)
		if !ok {
			continue
		}
		for _, v := range texts {
			want := AppendStr(AppendMapHeader([]byte("x"), 1), k)
			switch v := v.(type) {
			case string:
				want = AppendStr(want, v)
			case int:
				want = AppendInt(want, int64(v))
			default:
				want = AppendNil(want)
			}
			for _, capacity := range []int{0, 1, 2, 17, 33, 34, 35, 36, 60} {
				mem := bytes.Repeat([]byte{'-'}, 80)
				mem[0] = 'x'
				got, err := AppendMap(mem[:1:1+capacity], map[string]any{k: v}, &pairer{})
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%q: %v, capacity %d: %x, want %x (%v)", k, v, capacity, got, want, err)
				}
				if len(bytes.Trim(mem[1+capacity:], "-")) > 0 {
					t.Fatalf("%q: %v, capacity %d: wrote past the end: %q", k, v, capacity, mem)
				}
			}
		}
	}
}

// AppendMap writes each of many pairs of all kinds once. An error ends the call.
func TestAppendMapOfMany(t *testing.T) {
	m := map[string]any{}
	for i := range 200 {
		k := strings.Repeat("k", i%7) + string(rune('a'+i%26)) + strings.Repeat("ö", i%3) + string(rune('0'+i/26))
		m[k] = []any{"value", i, nil, strings.Repeat("v", i), "\xff"}[i%5]
	}
	for _, capacity := range []int{0, 100, 1000, 1 << 16} {
		var p pairer
		b, err := AppendMap(make([]byte, 0, capacity), m, &p)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, err := Next(b)
		if err != nil || head.Kind != Map || head.Len != len(m) {
			t.Fatalf("%+v, %v", head, err)
		}
		seen := map[string]bool{}
		for range m {
			var k, v Token
			if k, rest, err = Next(rest); err == nil {
				v, rest, err = Next(rest)
			}
			if err != nil {
				t.Fatal(err)
			}
			seen[string(k.Bytes)] = true
			switch want := m[string(k.Bytes)].(type) {
			case string:
				if string(v.Bytes) != strings.ToValidUTF8(want, "\ufffd") {
					t.Errorf("%s: %q, want %q", k.Bytes, v.Bytes, want)
				}
			case int:
				if v.Int64() != int64(want) && v.Num != uint64(want) {
					t.Errorf("%s: %d, want %d", k.Bytes, v.Num, want)
				}
			default:
				if v.Kind != Nil {
					t.Errorf("%s: %v, want nil", k.Bytes, v.Kind)
				}
			}
		}
		if len(seen) != len(m) || len(rest) != 0 {
			t.Errorf("%d of %d keys, %d bytes of rest", len(seen), len(m), len(rest))
		}
	}
	p := pairer{err: errors.New("no")}
	if _, err := AppendMap(nil, m, &p); err != p.err || len(p.keys) != 1 {
		t.Errorf("%v after %d pairs", err, len(p.keys))
	}
}

// Scalar agrees with Next for every first byte, complete or truncated.
func TestScalar(t *testing.T) {
	for c := range 256 {
		b := append([]byte{byte(c), 3, 0, 5}, make([]byte, 40)...)
		for n := range len(b) + 1 {
			tok, rest, err := Next(b[:n])
			got := Scalar(b[:n])
			size := n - len(rest)
			switch {
			case got == 0 && err == nil && tok.Kind != Array && tok.Kind != Map && (c < cExt8 || c > cExt32) &&
				!slices.Contains([]int{cStr16, cStr32, cBin16, cBin32}, c):
				t.Errorf("%#x: Scalar returns 0 for % x", c, b[:n])
			case got > 0 && (err != nil || tok.Kind == Array || tok.Kind == Map || size != got):
				t.Errorf("%#x: Scalar returns %d for % x, Next %v, %d, %v", c, got, b[:n], tok.Kind, size, err)
			}
		}
	}
}

// If a map contains a key of any length twice, the second one is renamed, in JSON and in
// MessagePack.
func TestUniqueKeys(t *testing.T) {
	for _, n := range []int{0, 1, 30, 31, 32, 254, 255, 256, 1<<16 - 1, 1 << 16} {
		key := strings.Repeat("k", n)
		js := fmt.Sprintf(`{"%s":1,"%s":{"%s":[{"%s":2,"%s":3}]}}`, key, key, key, key, key)
		want := fmt.Sprintf(`{"%s":1,"%s_":{"%s":[{"%s":2,"%s_":3}]}}`, key, key, key, key, key)
		plain, _, err := AppendFromJSON(nil, []byte(js))
		if err != nil {
			t.Fatal(err)
		}
		again, err := AppendUnique([]byte("x"), plain)
		if err != nil {
			t.Fatal(err)
		}
		unique, _, err := AppendUniqueFromJSON([]byte("x"), []byte(js))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{again, unique} {
			if got, rest, err := AppendJSON(nil, b[1:]); err != nil || len(rest) > 0 || string(got) != want {
				t.Errorf("%d bytes: %v, %.200s", n, err, got)
			}
		}
	}
	for _, bad := range []string{`{"a":1,"a":`, `{"a":{"b":1,`, `{"a"`} {
		if _, _, err := AppendUniqueFromJSON(nil, []byte(bad)); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	if _, err := AppendUnique(nil, []byte{0x82, 0xa1, 'a', 1}); err == nil {
		t.Error("incomplete map: no error")
	}
}

// AppendFromJSON scans strings eight bytes at a time. Each piece is tested at every position, with
// text after the string.
func TestFromJSONStrings(t *testing.T) {
	for n := range 20 {
		for _, piece := range []string{"", `\"`, `\\`, `\n`, "\x7f", "é", "日本", "\xff", "\x00", "\x1f", "\n"} {
			for _, rest := range []string{"", `,"x":"y"}`, "é and more text"} {
				js := `"` + strings.Repeat("x", n) + piece + strings.Repeat("y", n/2) + `"`
				mp, left, err := AppendFromJSON(nil, []byte(js+rest))
				var want string
				if jsonErr := json.Unmarshal([]byte(js), &want); (err != nil) != (jsonErr != nil) {
					t.Fatalf("%q: %v, encoding/json: %v", js, err, jsonErr)
				}
				if err != nil {
					continue
				}
				if tok, _, err := Next(mp); err != nil || string(tok.Bytes) != want || string(left) != rest {
					t.Fatalf("%q: %q, rest %q, %v", js, tok.Bytes, left, err)
				}
			}
		}
	}
}

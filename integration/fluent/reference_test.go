package fluent

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/forebay-log/forebay/fluent"
)

// Another project's decoder reads encoded events, with the same result as encoding and decoding
// them with encoding/json.
func FuzzReferenceDecoder(f *testing.F) {
	f.Add(`{"a":[1,2.5,"x",null,{"b":true}],"big":18446744073709551615,"neg":-129}`, "s", int64(-5), 2.5)
	f.Add("{}", "0\xb7\xb6", int64(40000), 0.0)
	f.Fuzz(func(t *testing.T, js, s string, i int64, x float64) {
		v := map[string]any{}
		if json.Unmarshal([]byte(js), &v) != nil || v == nil {
			v = map[string]any{}
		}
		v["s"], v["i"], v["x"] = s, i, x
		v["st"] = struct {
			S string  `json:"s"`
			I *int64  `json:"i,omitempty"`
			X float64 `json:"x,omitempty"`
			L []int64
		}{s, &i, x, []int64{i}}
		want, err := json.Marshal(v)
		if err != nil {
			return // JSON cannot represent NaN
		}
		out, err := fluent.AppendEvent(nil, time.Unix(1, 2), v)
		if err != nil {
			return
		}
		msgpack.RegisterExtDecoder(0, time.Time{}, func(*msgpack.Decoder, reflect.Value, int) error { return nil })
		var raw []msgpack.RawMessage
		if err := msgpack.Unmarshal(out, &raw); err != nil || len(raw) != 2 {
			t.Fatalf("%v: %d elements", err, len(raw))
		}
		var got any
		if err := msgpack.Unmarshal(raw[1], &got); err != nil {
			t.Fatal(err)
		}
		have, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(want, &a) != nil || json.Unmarshal(have, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("want %s\n got %s", want, have)
		}
	})
}

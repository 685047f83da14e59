package encode

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/values"
)

func TestCodecForContentTypes(t *testing.T) {
	for in, want := range map[string]string{
		"application/x-ndjson": contentTypeJSON, "application/json; charset=utf-8": contentTypeJSON, "Application/JSON": contentTypeJSON,
		"application/jsonl": contentTypeJSON, "application/ndjson": contentTypeJSON,
		"application/logfmt": contentTypeLogfmt, "text/plain": contentTypeText, "text/plain; charset=utf-8": contentTypeText,
		"": "", "application/protobuf": "", "text/plain; ;": contentTypeText, "\xff": "",
	} {
		c, ok := CodecFor(in)
		if ok != (want != "") || ok && c.ContentType() != want {
			t.Errorf("%q: %v %v", in, c, ok)
		}
	}
	for _, e := range []Encoder{JSON(nil), Logfmt(nil), Console(nil)} {
		if _, ok := CodecFor(e.Codec().ContentType()); !ok {
			t.Errorf("no codec for the records of %v", e)
		}
	}
}

func TestCodecsConvertLinesToJSON(t *testing.T) {
	for _, c := range []struct {
		codec    batch.Codec
		rec, out string
	}{
		{JSON(nil).Codec(), `{"a":1}` + "\n", `{"a":1}`},
		{JSON(nil).Codec(), ` {"a": 1}` + "\r\n", `{"a": 1}`},
		{JSON(nil).Codec(), "{\n \"a\": [1,\r 2]\n}\n", `{"a":[1,2]}`},
		{JSON(nil).Codec(), "{\"a\":\r1}", `{"a":1}`},
		{JSON(nil).Codec(), "{\"a\":\"\xff\"}\n", "{\"a\":\"\ufffd\"}"},
		{JSON(nil).Codec(), "[1]\n", `{"raw":"[1]"}`},
		{JSON(nil).Codec(), "\n", `{"raw":""}`},
		{JSON(nil).Codec(), "", `{"raw":""}`},
		{JSON(nil).Codec(), "{\"a\":1\n", `{"raw":"{\"a\":1"}`},
		{JSON(nil).Codec(), "panic: \"x\"\x00\xff\r\n", `{"raw":"panic: \"x\"\u0000` + "\ufffd" + `"}`},
		{JSON(nil).Codec(), strings.Repeat("[", 20000), `{"raw":"` + strings.Repeat("[", 20000) + `"}`},
		{Logfmt(nil).Codec(), "a=1 b=\"x y\" c= d=\"\" e\n", `{"a":"1","b":"x y","c":"","d":"","e":true}`},
		{Logfmt(nil).Codec(), `level=INFO msg="tab\there \u00e9 \"q\""`, `{"level":"INFO","msg":"tab\there é \"q\""}`},
		{Logfmt(nil).Codec(), `msg="as slog \x1b quotes"`, `{"msg":"as slog \u001b quotes"}`},
		{Logfmt(nil).Codec(), "  a=1\t b=2  ", `{"a":"1","b":"2"}`},
		{Logfmt(nil).Codec(), `k="v`, `{"raw":"k=\"v"}`},
		{Logfmt(nil).Codec(), `k="v"x`, `{"raw":"k=\"v\"x"}`},
		{Logfmt(nil).Codec(), `k=v"x"`, `{"raw":"k=v\"x\""}`},
		{Logfmt(nil).Codec(), `=v`, `{"raw":"=v"}`},
		{Logfmt(nil).Codec(), `"k"=v`, `{"raw":"\"k\"=v"}`},
		{Logfmt(nil).Codec(), `k="\q"`, `{"raw":"k=\"\\q\""}`},
		{Logfmt(nil).Codec(), `just some words`, `{"raw":"just some words"}`},
		{Logfmt(nil).Codec(), "a=1\x002", `{"raw":"a=1\u00002"}`},
		{Logfmt(nil).Codec(), "\n", `{"raw":""}`},
		{Logfmt(nil).Codec(), "k\xff=\xff", "{\"k\ufffd\":\"\ufffd\"}"},
		{RawCodec(), "any \"thing\"\t\r\n", `{"raw":"any \"thing\"\t"}`},
		{RawCodec(), "{\"a\":1}\n", `{"raw":"{\"a\":1}"}`},
		{Console(&Options{Color: true}).Codec(), values.ColorRed + "ERROR" + values.ColorOff + " x\n", `{"raw":"ERROR x"}`},
	} {
		got := string(c.codec.AppendJSON([]byte("x"), []byte(c.rec), batch.Meta{}))
		if got != "x"+c.out {
			t.Errorf("%s: %q\n got %s\nwant x%s", c.codec.ContentType(), c.rec, got, c.out)
		}
		if !json.Valid([]byte(got[1:])) {
			t.Errorf("not valid: %s", got)
		}
	}
}

func TestGapMarkersHaveDropsByReason(t *testing.T) {
	var d batch.Drops
	d[batch.Full], d[batch.Poison] = 3, 1
	now := benchTime
	rename := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "msg" {
			a.Key = "message"
		}
		return a
	}
	for _, c := range []struct {
		codec batch.Codec
		want  string
	}{
		{JSON(nil).Codec(), `{"time":"2026-11-20T13:44:10.123456789Z","level":"WARN","msg":"records dropped","dropped":4,"reasons":{"full":3,"poison":1}}` + "\n"},
		{JSON(&Options{TimeKey: "ts", Time: "unix", ReplaceAttr: rename}).Codec(), `{"ts":1795182250,"level":"WARN","message":"records dropped","dropped":4,"reasons":{"full":3,"poison":1}}` + "\n"},
		{Logfmt(nil).Codec(), `time=2026-11-20T13:44:10.123456789Z level=WARN msg="records dropped" dropped=4 reasons.full=3 reasons.poison=1` + "\n"},
		{Console(&Options{Location: time.UTC}).Codec(), "13:44:10.123 WARN  records dropped  dropped=4 reasons.full=3 reasons.poison=1\n"},
		{RawCodec(), ""},
	} {
		if got := string(c.codec.AppendMarker([]byte("x"), d, now)); got != "x"+c.want {
			t.Errorf("got %swant x%s", got, c.want)
		}
	}
	// Each codec can convert its own gap marker.
	for _, c := range []batch.Codec{JSON(nil).Codec(), Logfmt(nil).Codec()} {
		out := c.AppendJSON(nil, c.AppendMarker(nil, d, now), batch.Meta{})
		var m map[string]any
		if err := json.Unmarshal(out, &m); err != nil || m["msg"] != "records dropped" {
			t.Errorf("%s: %v", out, err)
		}
	}
}

func FuzzCodecs(f *testing.F) {
	for _, s := range []string{"", "\n", `{"a":1}`, `a=1 b="x"`, "\xff", "{\n}", `k="\ud800"`, `{"a":{"a":`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, rec []byte) {
		for _, c := range []batch.Codec{JSON(nil).Codec(), Logfmt(nil).Codec(), RawCodec(), Console(nil).Codec()} {
			checkJSONLine(t, c.AppendJSON([]byte("x"), rec, batch.Meta{}), rec)
		}
	})
}

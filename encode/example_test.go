package encode_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

var moment = time.Date(2026, 11, 20, 13, 44, 10, 123456789, time.UTC)

func print(e encode.Encoder, r *encode.Record) {
	out, _, err := e.Scope().Append(nil, r)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(out)
}

func ExampleJSON() {
	print(encode.JSON(nil), &encode.Record{Time: moment, Message: "started", Attrs: []slog.Attr{
		slog.Int("port", 8080), slog.Any("err", fmt.Errorf("listen: %w", errors.New("address in use"))),
	}})
	// Output: {"time":"2026-11-20T13:44:10.123456789Z","level":"INFO","msg":"started","port":8080,"err":"listen: address in use"}
}

func ExampleOptions() {
	print(encode.JSON(&encode.Options{
		Time: "unixmilli", TimeKey: "ts", Level: "lower", Duration: "seconds",
	}), &encode.Record{Time: moment, Message: "done", Attrs: []slog.Attr{slog.Duration("took", 1500*time.Millisecond)}})
	// Output: {"ts":1795182250123,"level":"info","msg":"done","took":1.5}
}

func ExampleOptions_errors() {
	r := &encode.Record{Message: "started", Attrs: []slog.Attr{slog.Any("err", fmt.Errorf("listen: %w", errors.New("address in use")))}}
	print(encode.JSON(nil), r)
	print(encode.JSON(&encode.Options{Errors: "chain"}), r)
	// Output:
	// {"level":"INFO","msg":"started","err":"listen: address in use"}
	// {"level":"INFO","msg":"started","err":"listen: address in use","err_chain":["address in use"]}
}

func ExampleLogfmt() {
	print(encode.Logfmt(nil), &encode.Record{Time: moment, Message: "line one\nline two", Attrs: []slog.Attr{
		slog.Group("req", slog.String("path", "/a b"), slog.Int("status", 200)),
	}})
	// Output: time=2026-11-20T13:44:10.123456789Z level=INFO msg="line one\nline two" req.path="/a b" req.status=200
}

func ExampleConsole() {
	print(encode.Console(&encode.Options{Location: time.UTC, Color: encode.ColorTerminal(nil)}), &encode.Record{
		Time: moment, Level: slog.LevelWarn, Message: "disk almost full", Attrs: []slog.Attr{slog.String("path", "/var/lib")},
	})
	// Output: 13:44:10.123 WARN  disk almost full  path=/var/lib
}

func ExampleScope() {
	// The attributes of WithAttrs and the group are encoded here, once, rather than for each
	// record.
	s := encode.JSON(&encode.Options{TimeKey: "-"}).Scope().WithAttrs([]slog.Attr{slog.String("app", "shop")}).WithGroup("req")
	for i := range 2 {
		out, _, _ := s.Append(nil, &encode.Record{Message: "served", Attrs: []slog.Attr{slog.Int("id", i)}})
		os.Stdout.Write(out)
	}
	// Output:
	// {"level":"INFO","msg":"served","app":"shop","req":{"id":0}}
	// {"level":"INFO","msg":"served","app":"shop","req":{"id":1}}
}

type user struct {
	Name string
	Age  int
}

// AppendAttrs makes user log as a group, without an allocation.
func (u *user) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.String("name", u.Name), slog.Int("age", u.Age))
}

func ExampleAttrAppender() {
	users := []user{{"Ada", 36}, {"Alan", 41}}
	print(encode.JSON(&encode.Options{TimeKey: "-"}), &encode.Record{Message: "login", Attrs: []slog.Attr{
		slog.Any("user", &users[0]), slog.Any("all", &users),
	}})
	// Output: {"level":"INFO","msg":"login","user":{"name":"Ada","age":36},"all":[{"name":"Ada","age":36},{"name":"Alan","age":41}]}
}

func ExampleOptions_layout() {
	print(encode.JSON(&encode.Options{Time: "02.01.2006 15:04"}), &encode.Record{Time: moment, Message: "m"})
	// Output: {"time":"20.11.2026 13:44","level":"INFO","msg":"m"}
}

func ExampleCodecFor() {
	c, ok := encode.CodecFor("application/logfmt")
	fmt.Println(ok, string(c.AppendJSON(nil, []byte("level=info msg=\"a line\"\n"), batch.Meta{})))
	// Output: true {"level":"info","msg":"a line"}
}

func ExampleRawCodec() {
	fmt.Println(string(encode.RawCodec().AppendJSON(nil, []byte("any \"line\"\n"), batch.Meta{})))
	// Output: {"raw":"any \"line\""}
}

func ExampleEncoder_codec() {
	line := []byte(`{"level":"info","msg":"a line"}` + "\n")
	fmt.Println(string(encode.JSON(nil).Codec().AppendJSON(nil, line, batch.Meta{})))

	var dropped batch.Drops
	dropped[batch.Full] = 3
	fmt.Print(string(encode.JSON(nil).Codec().AppendMarker(nil, dropped, moment)))
	fmt.Print(string(encode.Logfmt(nil).Codec().AppendMarker(nil, dropped, moment)))
	// Output:
	// {"level":"info","msg":"a line"}
	// {"time":"2026-11-20T13:44:10.123456789Z","level":"WARN","msg":"records dropped","dropped":3,"reasons":{"full":3}}
	// time=2026-11-20T13:44:10.123456789Z level=WARN msg="records dropped" dropped=3 reasons.full=3
}

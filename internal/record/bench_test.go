package record

import (
	"log/slog"
	"testing"
	"time"
)

func BenchmarkLine(b *testing.B) {
	for _, c := range []struct {
		name, line string
		as         Encoding
		more       []slog.Attr
	}{
		{"text", "2015-07-29 17:41:44,747 - INFO  [QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181:FastLeaderElection@774] - Notification time out: 3200\n", AsJSON, nil},
		{"text without anything", "Invalid user webmaster from 173.234.31.186 and a few more words to make it as long as the others are on average\n", AsJSON, nil},
		{"json", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"took":0.0123}` + "\n", AsJSON, nil},
		{"json to logfmt", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"took":0.0123}` + "\n", AsLogfmt, nil},
		{"logfmt to json", `ts=2024-05-06T07:08:09.123Z level=info msg="request served" method=GET path=/v2/items status=200 took=0.0123` + "\n", AsJSON, nil},
		{"json of a pod", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"took":0.0123}` + "\n", AsJSON,
			[]slog.Attr{slog.String("namespace", "prod"), slog.String("pod", "web-1"), slog.String("container", "c"), slog.String("stream", "stdout")}},
		{"json with such a field", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"stream":"x"}` + "\n", AsJSON,
			[]slog.Attr{slog.String("namespace", "prod"), slog.String("pod", "web-1"), slog.String("container", "c"), slog.String("stream", "stdout")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := Parser{Location: time.UTC}
			e := NewEncoder(c.as)
			line := []byte(c.line)
			var ev Event
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				p.Parse(line, &ev)
				ev.More = c.more
				e.Encode(&ev)
			}
		})
	}
}

package record

import (
	"log/slog"
	"testing"
	"time"
)

// BenchmarkLine measures Parse and Encode of one line.
func BenchmarkLine(b *testing.B) {
	for _, c := range []struct {
		name, line string
		as         Encoding
		more       []slog.Attr
	}{
		{"text", "2015-07-29 17:41:44,747 - INFO  [QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181:FastLeaderElection@774] - Notification time out: 3200\n", AsJSON, nil},
		{"syslog", "Dec 10 07:28:03 LabSZ sshd[24245]: Failed password for root from 112.95.230.3 port 45378 ssh2\n", AsJSON, nil},
		{"apache", "[Fri Nov 20 10:11:12.123456 2026] [core:error] [pid 12:tid 34] [client 10.0.0.1:56789] File does not exist: /var/www/html/favicon.ico\n", AsJSON, nil},
		{"access log", `10.0.0.1 - frank [20/Nov/2026:10:11:12 +0100] "GET /index.html HTTP/1.1" 200 2326 "-" "Mozilla/5.0"` + "\n", AsJSON, nil},
		{"klog", "I1120 10:11:12.123456       1 controller.go:123] Starting workers for the replica set controller\n", AsJSON, nil},
		{"prose", "The quick brown fox jumps over the lazy dog and nobody knows why it does so on every single day\n", AsJSON, nil},
		{"text without anything", "Invalid user webmaster from 173.234.31.186 and a few more words to make it as long as the others are on average\n", AsJSON, nil},
		{"json", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"took":0.0123}` + "\n", AsJSON, nil},
		{"json of pipe", `{"time":"2024-05-06T07:08:09.000007919Z","level":"INFO","msg":"request served to the client in time","method":"GET","path":"/v2/items/100001/parts","status":200,"took":0.1179,"cached":false,"request_id":"a6cecc1b78e510617311d8a300000001","user":"u-000001","remote":"10.1.0.1:51234","agent":"Mozilla/5.0 (X11)"}` + "\n", AsJSON, nil},
		{"json to logfmt", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"took":0.0123}` + "\n", AsLogfmt, nil},
		{"logfmt to json", `ts=2024-05-06T07:08:09.123Z level=info msg="request served" method=GET path=/v2/items status=200 took=0.0123` + "\n", AsJSON, nil},
		{"json of a pod", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"took":0.0123}` + "\n", AsJSON,
			[]slog.Attr{slog.String("namespace", "prod"), slog.String("pod", "web-1"), slog.String("container", "c"), slog.String("stream", "stdout")}},
		{"json with such a field", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"stream":"x"}` + "\n", AsJSON,
			[]slog.Attr{slog.String("namespace", "prod"), slog.String("pod", "web-1"), slog.String("container", "c"), slog.String("stream", "stdout")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := Parser{Location: time.UTC, Now: time.Now}
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

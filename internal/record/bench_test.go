package record

import (
	"testing"
	"time"
)

func BenchmarkLine(b *testing.B) {
	for _, c := range []struct {
		name, line string
		as         Encoding
	}{
		{"text", "2015-07-29 17:41:44,747 - INFO  [QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181:FastLeaderElection@774] - Notification time out: 3200\n", AsJSON},
		{"text without anything", "Invalid user webmaster from 173.234.31.186 and a few more words to make it as long as the others are on average\n", AsJSON},
		{"json", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"took":0.0123}` + "\n", AsJSON},
		{"json to logfmt", `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"took":0.0123}` + "\n", AsLogfmt},
		{"logfmt to json", `ts=2024-05-06T07:08:09.123Z level=info msg="request served" method=GET path=/v2/items status=200 took=0.0123` + "\n", AsJSON},
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
				e.Encode(&ev)
			}
		})
	}
}

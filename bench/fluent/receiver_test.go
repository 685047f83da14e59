package fluent

import (
	"testing"

	"github.com/forebay-log/forebay/internal/msgpack"
)

// The receiver counts the events of the modes PackedForward and Forward, and returns the id of the
// chunk.
func TestReceiverCountsEventsOfBothModes(t *testing.T) {
	event := msgpack.AppendMapHeader(msgpack.AppendInt(msgpack.AppendArrayHeader(nil, 2), 1), 0)
	two := append(append([]byte(nil), event...), event...)
	head := msgpack.AppendStr(msgpack.AppendArrayHeader(nil, 3), "tag")
	option := msgpack.AppendStr(msgpack.AppendStr(msgpack.AppendMapHeader(nil, 1), "chunk"), "id")
	for mode, events := range map[string][]byte{
		"PackedForward": msgpack.AppendBin(nil, two),
		"Forward":       append(msgpack.AppendArrayHeader(nil, 2), two...),
	} {
		msg := append(append(append([]byte(nil), head...), events...), option...)
		if n, chunk := count(msg); n != 2 || string(chunk) != string(msgpack.AppendStr(nil, "id")) {
			t.Errorf("%s: %d events, chunk %q", mode, n, chunk)
		}
	}
}

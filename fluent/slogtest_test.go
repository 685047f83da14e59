package fluent

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"path"
	"testing"
	"testing/slogtest"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
)

// A Router with this encoder passes testing/slogtest. There is one exception: a record without a
// time has a time field, because an entry always has a time.
func TestSlogtest(t *testing.T) {
	enc, err := NewEncoder(nil)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		buf.Reset()
		r, err := forebay.NewRouter(forebay.Route(enc, forebay.Writer(&buf, forebay.Direct())))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}, func(t *testing.T) map[string]any {
		var entry struct {
			Time   any            `json:"time"`
			Record map[string]any `json:"record"`
		}
		if err := json.Unmarshal(Codec().AppendJSON(nil, buf.Bytes(), batch.Meta{}), &entry); err != nil {
			t.Fatal(err)
		}
		if path.Base(t.Name()) != "zero-time" && entry.Time != nil {
			entry.Record[slog.TimeKey] = entry.Time
		}
		return entry.Record
	})
}

package deliver

import (
	"context"
	"errors"
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// ToOutput returns an [ErrorHandler] that passes records to another output, the fallback. A record
// that the fallback accepts counts as handled, and the fallback accounts for it from then on. A
// record that the fallback drops at once, because it is full, stays pending, and so do the records
// after it; they are offered again after the retry delay. The handler does not close the fallback.
//
// codec is the codec of the records, nil for plain lines. If the fallback has a Codec method with
// another content type, records become JSON lines like those of [JSONLines]. ToOutput returns an
// error if the fallback accepts neither those nor plain lines.
func ToOutput(fallback interface {
	WriteRecord(p []byte, m batch.Meta) error
}, codec batch.Codec) (ErrorHandler, error) {
	if fallback == nil {
		return nil, errors.New("deliver: fallback is nil")
	}
	asJSON := false
	if c, ok := fallback.(interface{ Codec() batch.Codec }); ok {
		own, other := contentType(codec), contentType(c.Codec())
		asJSON = own != other
		if asJSON && other != jsonLinesType && other != "" {
			return nil, fmt.Errorf("deliver: the fallback accepts content type %q, and the records have content type %q: use a fallback for JSON lines, or an ErrorHandler that transcodes", other, own)
		}
	}
	return contextHandler(func(ctx context.Context, _ error, b *batch.Batch) batch.Outcome {
		var buf []byte
		for i, rec := range b.All() {
			if ctx.Err() != nil { // no record goes both to the fallback and to the spool
				return batch.Outcome{Open: batch.From(i), Why: errHandlerTimeout}
			}
			p := rec.Data
			if asJSON {
				buf = append(appendRecord(buf[:0], b.Codec, &rec), '\n')
				p = buf
			}
			if err := fallback.WriteRecord(p, rec.Meta); err != nil {
				return batch.Outcome{Open: batch.From(i), Why: fmt.Errorf("fallback: %w", err)}
			}
		}
		return batch.Outcome{}
	}), nil
}

// jsonLinesType is the content type of JSON lines, the same as in package encode.
const jsonLinesType = "application/x-ndjson"

// contentType returns the content type of c, "" for plain lines.
func contentType(c batch.Codec) string {
	if c == nil {
		return ""
	}
	return c.ContentType()
}

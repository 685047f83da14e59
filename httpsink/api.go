package httpsink

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/keyset"
	"github.com/forebay-log/forebay/internal/record"
)

const (
	contentTypeLines = "application/x-ndjson"
	contentTypeJSON  = "application/json"

	bulkPath = "/_bulk"
)

// An api describes the request format of a kind of server.
type api struct {
	name    string
	alias   string // alternative name; "" if there is none
	example string // example of a URL
	path    string // default path of the URL
	query   string
	gzip    bool
	records int // limit of records per request; 0 means no limit

	contentType  string
	headers      map[string]string // default headers
	header, word string            // header of the token, and the word before the token

	array     bool // records are elements of an array
	bulk, hec bool

	// timeKey is the server's key of the time. It is added to a record without it.
	timeKey string
	keys    encode.Options // options of the default encoder
}

const anyURL = "http://host/path or https://host/path"

// apis are all APIs. The first is the default.
var apis = []api{
	{name: "ndjson", example: anyURL, contentType: contentTypeLines},
	{name: "array", alias: "json", example: anyURL, contentType: contentTypeJSON, array: true},
	{
		name: "elasticsearch", alias: "opensearch", example: "http://host:9200/INDEX or https://host/INDEX", bulk: true, gzip: true,
		// Results are assigned by position, so the filtered response must keep something
		// of each item.
		query: "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason,error,status", contentType: contentTypeLines,
		header: "Authorization", word: "ApiKey ",
		timeKey: "@timestamp", keys: encode.Options{TimeKey: "@timestamp", MessageKey: "message"},
	},
	{
		name: "hec", alias: "splunk", example: "https://host:8088", path: "/services/collector/event", hec: true, gzip: true, contentType: contentTypeJSON,
		header: "Authorization", word: "Splunk ",
	},
	{
		name: "victorialogs", example: "http://host:9428", path: "/insert/jsonline", gzip: true, contentType: contentTypeLines,
		headers: map[string]string{"VL-Time-Field": "_time", "VL-Msg-Field": "_msg,msg,message"},
		timeKey: "_time", keys: encode.Options{TimeKey: "_time", MessageKey: "_msg"},
	},
	{
		name: "datadog", example: "https://http-intake.logs.datadoghq.com", path: "/api/v2/logs", gzip: true, records: 1000, contentType: contentTypeJSON, array: true,
		header: "DD-API-KEY", timeKey: "timestamp", keys: encode.Options{TimeKey: "timestamp", MessageKey: "message"},
	},
}

// apiCalled returns the API with that name, or nil.
func apiCalled(name string) *api {
	for i := range apis {
		if f := &apis[i]; f.name == name || f.alias == name && name != "" {
			return f
		}
	}
	return nil
}

func apiNames() (names []string) {
	for _, f := range apis {
		names = append(names, f.name)
	}
	return names
}

// A framer encodes requests of one API.
type framer struct {
	f       *api
	noID    bool
	event   []byte // hec: beginning of an event without a time
	timeKey []byte // quoted key of the time; nil if there is none
	scratch []byte
	unique  []byte // scratch memory for a record with unique keys
	keys    keyset.Set
}

func newFramer(c *Config) framer {
	fr := framer{f: c.api, noID: c.NoID}
	if k := c.api.timeKey; k != "" {
		fr.timeKey = []byte(`"` + k + `"`)
	}
	fr.event = []byte{'{'}
	for _, key := range sortedKeys(c.HEC) {
		fr.event = jsontext.AppendString(jsontext.AppendKey(fr.event, key), c.HEC[key])
	}
	fr.event = jsontext.AppendKey(fr.event, "event")
	return fr
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// anyLine is the codec of lines of unknown content: JSON objects or other text.
var anyLine = encode.JSON(nil).Codec()

// append appends a request with the records of b.
func (fr *framer) append(dst []byte, b *batch.Batch) []byte {
	codec := b.Codec
	lines := codec != nil && codec.ContentType() == anyLine.ContentType()
	if codec == nil {
		codec = anyLine
	}
	named := fr.named(b)
	if fr.f.array {
		dst = append(dst, '[')
	}
	for i, r := range b.All() {
		switch {
		case fr.f.bulk && named:
			dst = append(dst, `{"create":{"_id":"`...)
			dst = dedup.ID{Origin: b.Origin, Ticket: r.Ticket}.Append(dst)
			dst = append(dst, "\"}}\n"...)
		case fr.f.bulk:
			dst = append(dst, "{\"create\":{}}\n"...)
		case fr.f.hec:
			dst = fr.beginEvent(dst, r.Meta)
		case fr.f.array && i > 0:
			dst = append(dst, ',')
		}
		dst = fr.object(dst, codec, &r, lines)
		switch {
		case fr.f.hec:
			dst = append(dst, "}\n"...)
		case !fr.f.array:
			dst = append(dst, '\n')
		}
	}
	if fr.f.array {
		dst = append(dst, ']')
	}
	return dst
}

// named reports whether the names of the records of b are sent.
func (fr *framer) named(b *batch.Batch) bool { return !fr.noID && b.Origin != [16]byte{} }

// beginEvent appends the part of an event before the record. Splunk times have milliseconds.
func (fr *framer) beginEvent(dst []byte, m batch.Meta) []byte {
	if m.Time <= 0 {
		return append(dst, fr.event...)
	}
	dst = strconv.AppendInt(append(dst, `{"time":`...), m.Time/int64(time.Second), 10)
	ms := m.Time / int64(time.Millisecond) % 1000
	dst = append(dst, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), ',')
	return append(dst, fr.event[1:]...)
}

// object appends a record as a JSON object on one line, with unique keys and the message under the
// name that the server expects. lines reports that the record is a line of JSON, which is accepted
// unchanged if it looks like an object.
func (fr *framer) object(dst []byte, codec batch.Codec, r *batch.Record, lines bool) []byte {
	obj := bytes.TrimSpace(r.Data)
	if !lines || len(obj) < 2 || obj[0] != '{' || obj[len(obj)-1] != '}' || bytes.IndexByte(obj, '\n') >= 0 {
		fr.scratch = codec.AppendJSON(fr.scratch[:0], r.Data, r.Meta)
		obj = fr.scratch
	}
	fr.unique = fr.keys.AppendJSON(fr.unique[:0], obj, slog.MessageKey, fr.f.keys.MessageKey)
	obj = fr.unique
	if fr.timeKey == nil || fr.hasTime(obj) {
		return append(dst, obj...)
	}
	at := time.Now() // data streams reject a record without a time
	if r.Time != 0 {
		at = time.Unix(0, r.Time)
	}
	dst = append(dst, '{')
	dst = append(dst, fr.timeKey...)
	dst = append(dst, `:"`...)
	dst = at.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	obj = bytes.TrimLeft(obj[1:], " \t\r\n")
	if obj[0] != '}' {
		dst = append(dst, ',')
	}
	return append(dst, obj...)
}

// hasTime reports whether an object has a member timeKey itself, not in a value.
func (fr *framer) hasTime(obj []byte) (found bool) {
	switch {
	case bytes.HasPrefix(obj[1:], fr.timeKey):
		return true
	case !bytes.Contains(obj, fr.timeKey):
		return false
	case !json.Valid(obj):
		return true // unchanged: the server reports the error
	}
	record.Members(obj, 0, func(m record.Member) bool {
		found = bytes.Equal(obj[m.Key:m.KeyEnd], fr.timeKey)
		return !found
	})
	return found
}

// notJSON returns the records of b that are not JSON and would be sent unchanged.
func (fr *framer) notJSON(b *batch.Batch) (bad []int) {
	if b.Codec == nil || b.Codec.ContentType() != anyLine.ContentType() {
		return nil
	}
	for i, r := range b.All() {
		obj := bytes.TrimSpace(r.Data)
		if len(obj) > 0 && obj[0] == '{' && obj[len(obj)-1] == '}' && bytes.IndexByte(obj, '\n') < 0 && !json.Valid(obj) {
			bad = append(bad, i)
		}
	}
	return bad
}

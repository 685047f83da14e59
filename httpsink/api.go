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

// The content types of requests, and the path of the bulk API of Elasticsearch.
const (
	contentTypeLines = "application/x-ndjson"
	contentTypeJSON  = "application/json"

	bulkPath = "/_bulk"
)

// An api describes the requests of one kind of server. Responses are interpreted in reply.go.
type api struct {
	name    string
	alias   string // alternative name; "" if there is none
	example string // example of a URL
	path    string // path of a URL that has none
	query   string // query parameters that are added to a URL
	gzip    bool   // requests are compressed by default
	records int    // maximum number of records per request; 0: no limit

	contentType string
	headers     map[string]string // default headers
	// tokenHeader is the header that contains the token, and tokenPrefix the text before the token.
	// If both are "", the header is Authorization: Bearer.
	tokenHeader, tokenPrefix string

	array bool // a request is a JSON array of records
	// In a bulk request, a line with an action precedes each record, and the response has a result
	// for each record.
	bulk bool
	hec  bool // each record is the member "event" of a Splunk event object

	// timeKey is the key of the time. A member with this key is added to a record that has none.
	timeKey string
	keys    encode.Options // options of the default encoder
}

// anyURL is the example of a URL for an API without a default path.
const anyURL = "http://host/path or https://host/path"

// apis contains all APIs, the default first. They follow the reference documentation of the
// Elasticsearch bulk API, the Splunk HTTP Event Collector, VictoriaLogs data ingestion and the
// Datadog logs API v2.
var apis = []api{
	{name: "ndjson", example: anyURL, contentType: contentTypeLines},
	{name: "array", alias: "json", example: anyURL, contentType: contentTypeJSON, array: true},
	{
		name: "elasticsearch", alias: "opensearch", example: "http://host:9200/INDEX or https://host/INDEX", bulk: true, gzip: true,
		// filter_path selects the parts of the response that are used, so that the response is
		// small. It must select at least one member of each item, because results are assigned to
		// records by position.
		query: "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason,error,status", contentType: contentTypeLines,
		tokenHeader: "Authorization", tokenPrefix: "ApiKey ",
		timeKey: "@timestamp", keys: encode.Options{TimeKey: "@timestamp", MessageKey: "message"},
	},
	{
		name: "hec", alias: "splunk", example: "https://host:8088", path: "/services/collector/event", hec: true, gzip: true, contentType: contentTypeJSON,
		tokenHeader: "Authorization", tokenPrefix: "Splunk ",
	},
	{
		name: "victorialogs", example: "http://host:9428", path: "/insert/jsonline", gzip: true, contentType: contentTypeLines,
		headers: map[string]string{"VL-Time-Field": "_time", "VL-Msg-Field": "_msg,msg,message"},
		timeKey: "_time", keys: encode.Options{TimeKey: "_time", MessageKey: "_msg"},
	},
	{
		name: "datadog", example: "https://http-intake.logs.datadoghq.com", path: "/api/v2/logs", gzip: true, records: 1000, contentType: contentTypeJSON, array: true,
		tokenHeader: "DD-API-KEY", timeKey: "timestamp", keys: encode.Options{TimeKey: "timestamp", MessageKey: "message"},
	},
}

// apiNamed returns the API with the given name or alias, or nil.
func apiNamed(name string) *api {
	for i := range apis {
		if f := &apis[i]; f.name == name || f.alias == name && name != "" {
			return f
		}
	}
	return nil
}

// apiNames returns the names of all APIs, without aliases.
func apiNames() (names []string) {
	for _, f := range apis {
		names = append(names, f.name)
	}
	return names
}

// A framer builds the requests of one API from encoded records. One goroutine at a time uses it.
type framer struct {
	f       *api
	noID    bool   // Config.NoID
	event   []byte // for the API hec: the beginning of an event without a time, up to the record
	timeKey []byte // key of the time in quotes; nil if the API has none
	scratch []byte // scratch memory for a record encoded as JSON
	unique  []byte // scratch memory for a record with unique keys
	keys    keyset.Set
}

// newFramer returns the framer for the API of c.
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

// sortedKeys returns the keys of m in order.
func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// jsonLines is the codec of JSON lines. A record with this codec may also be any other text,
// because lines read from other programs have this codec, too.
var jsonLines = encode.JSON(nil).Codec()

// append appends a request with the records of b to dst.
func (fr *framer) append(dst []byte, b *batch.Batch) []byte {
	codec := b.Codec
	lines := codec != nil && codec.ContentType() == jsonLines.ContentType()
	if codec == nil {
		codec = jsonLines
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

// named reports whether a request with b contains the name of each record (its dedup.ID) as the
// _id. Records without an origin have no name.
func (fr *framer) named(b *batch.Batch) bool { return !fr.noID && b.Origin != [16]byte{} }

// beginEvent appends the beginning of an event of Splunk, up to the record. The time is in seconds
// with three decimals, because Splunk stores milliseconds.
func (fr *framer) beginEvent(dst []byte, m batch.Meta) []byte {
	if m.Time <= 0 {
		return append(dst, fr.event...)
	}
	dst = strconv.AppendInt(append(dst, `{"time":`...), m.Time/int64(time.Second), 10)
	ms := m.Time / int64(time.Millisecond) % 1000
	dst = append(dst, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), ',')
	return append(dst, fr.event[1:]...)
}

// object appends a record as a JSON object on one line. The keys of the object are unique, and the
// message has the key that the server expects. lines is set if the content of the record is
// unknown, as in a line of another program. If such a line looks like a JSON object, it is not
// encoded again.
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
	at := time.Now() // data streams of Elasticsearch reject a record without a time
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

// hasTime reports whether obj has a member with the key timeKey at its top level.
func (fr *framer) hasTime(obj []byte) (found bool) {
	switch {
	case bytes.HasPrefix(obj[1:], fr.timeKey):
		return true
	case !bytes.Contains(obj, fr.timeKey):
		return false
	case !json.Valid(obj):
		return true // the record is sent unchanged, so that the server reports the error
	}
	record.Members(obj, 0, func(m record.Member) bool {
		found = bytes.Equal(obj[m.Key:m.KeyEnd], fr.timeKey)
		return !found
	})
	return found
}

// notJSON returns the indexes of the records of b that look like JSON objects but are invalid. It
// is called only after a refusal, because the check is expensive.
func (fr *framer) notJSON(b *batch.Batch) (bad []int) {
	if b.Codec == nil || b.Codec.ContentType() != jsonLines.ContentType() {
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

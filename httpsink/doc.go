// Package httpsink sends records over HTTP: as lines or an array of JSON to any URL, and in the
// formats of Elasticsearch, OpenSearch, Splunk, VictoriaLogs and Datadog.
//
//	log, err := forebay.New(httpsink.To("http://localhost:9200/logs-shop", httpsink.API("elasticsearch")))
//
// A record is a JSON object that is encoded once, in the calling goroutine. A request consists of
// records and the framing of the [API]. Records in other formats, such as lines of a pipe, are
// converted to JSON when they are sent.
//
//	record ─▶ JSON ─▶ memory ─▶ batch ─▶ one request ─▶ server
//	                              ▲                        │
//	                              └── records to retry ◀───┴──▶ dead letters
//
// # Keys
//
// If an object has a key twice, the later one is renamed: one "_" is appended for each earlier
// one, as in package loki. Elasticsearch rejects documents with duplicate keys. The message of a
// record has the key "message" for Elasticsearch, OpenSearch and Datadog, "_msg" for VictoriaLogs
// and "msg" otherwise. A member "msg" is renamed accordingly, unless the record also has a member
// with the new key.
//
// # Answers
//
// 2xx settles the records. After 408, 425, 429 and 5xx the request is retried, respecting
// Retry-After. After a 413, requests become smaller. A record that gets 413 when it is sent alone
// becomes a dead letter. After 401, 403, 404 and redirects all records are held, and an alarm is
// raised.
//
// After 400 or 422, either a record is invalid or the server accepts no records. If it has accepted
// a record in the last ten seconds, it works; otherwise the driver sends it a copy of an earlier
// accepted record as a test. If the server works, the batch is searched for the invalid record.
//
// A 403, or a 400 without the text of an API, may come from a firewall that rejects the text of a
// record. If the server accepts the copy of an earlier record, the batch is searched, too.
//
// After a 500 or 502 the request is retried. If that happens three times and the server accepts other
// records, the batch is searched for the record at which the server fails. This record is retried
// apart from the others, and refused after an hour.
//
// An answer is ignored if it is truncated, does not end within the Timeout of Config.HTTP, or does
// not belong to the API, such as a login page.
//
// An answer of Splunk means that the records were received, not that they are indexed. The driver
// does not query the state of an ackId. A token with indexer acknowledgement requires a header
// X-Splunk-Request-Channel.
//
// Elasticsearch and OpenSearch answer for each record; an answer with a different number of results
// is ignored. Records for which the server was too busy are retried. A rejected record becomes a
// dead letter if other records were accepted, or if the reason is its content. If all records are
// rejected for another reason, such as an index that cannot be created, they are held. The name of
// a record (see package dedup) is its _id, so that a record that is sent again is not stored twice;
// see [Config.NoID].
//
// # Order
//
// One request is in flight at a time. Elasticsearch may accept one record of a request and be too
// busy for an earlier record of the same request. The earlier record then arrives later.
//
// Retry, memory, spool, crash safety and the account are the same as for every output, see
// packages forebay and deliver.
package httpsink

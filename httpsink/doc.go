// Package httpsink sends records over HTTP: as lines or an array of JSON to any URL, and in
// the ways of Elasticsearch, OpenSearch, Splunk, VictoriaLogs and Datadog.
//
//	log, err := forebay.New(httpsink.To("http://localhost:9200/logs-shop", httpsink.API("elasticsearch")))
//
// A record is a JSON object, encoded once, in the caller; a request is made of records and
// what the [API] puts around them. Records in another form, such as lines of a pipe, become
// JSON when they are sent.
//
// # Keys
//
// A key that an object has twice is renamed: the later one gets a "_" for each before it, as in
// package loki. Elasticsearch refuses documents with a key twice. The text of a record is called
// "message" for Elasticsearch, OpenSearch and Datadog, "_msg" for VictoriaLogs and "msg"
// elsewhere; a member "msg" gets that name, unless the record has it already.
//
// # Answers
//
// 2xx is taken. 408, 425, 429 and 5xx are tried again, after Retry-After; 413 makes requests
// smaller, and a record that is refused alone with it is a dead letter; 401, 403, 404 and
// redirects hold everything with an alarm. A 400 or 422 is searched
// for the record at fault, once it is known that the server takes others: it took one in
// the last ten seconds, or takes one again that it took before. An answer does not count if it
// is cut, has no end within [Config.Timeout], or is not that of the API, such as a login page.
//
// Splunk's answer means that it has received the records, not that they are indexed: an ackId in
// it is not polled. A token with indexer acknowledgement needs a header
// X-Splunk-Request-Channel.
//
// Elasticsearch and OpenSearch answer for each record; an answer for another number of records is
// none. Those that it was too busy for stay
// open. A record that is refused is a dead letter with its own reason, if others were taken
// or the reason is its content; if all are refused for something else, such as an index that
// cannot be made, they are held. The name of a record (see package dedup) is its _id, so that
// one that is sent again is not stored twice; see [Config.NoID].
//
// # Order
//
// One request is under way at a time. Elasticsearch may take a record of a request and be too
// busy for one before it: that one comes later.
//
// Retry, memory, spool, crash safety and the account are those of every output, see packages
// forebay and deliver.
package httpsink

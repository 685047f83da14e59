package httpsink

import (
	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output for forebay.New that sends records to url, such as
// "http://localhost:9200/logs-shop":
//
//	log, err := forebay.New(httpsink.To("http://localhost:9200/logs-shop", httpsink.API("elasticsearch")))
//
// The options of all outputs are in package forebay; forebay.Configure sets fields of [Config]:
// authentication, TLS, headers, limits. By default records have the keys that the server
// expects for time and message; forebay.Encoder overrides them.
func To(url string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("httpsink.To", Config{URL: url}, openOutput, opts...)
}

// openOutput creates the Driver for an output made with [To].
func openOutput(c *Config, _ *forebay.Setup) (deliver.Destination, error) {
	return New(*c)
}

// API sets the request format:
//
//	ndjson         a JSON object per line, the default
//	array          an array of JSON objects
//	elasticsearch  Elasticsearch and OpenSearch, by _bulk
//	hec            the HTTP Event Collector of Splunk
//	victorialogs   VictoriaLogs
//	datadog        Datadog
//
// json is another name for array, opensearch for elasticsearch, and splunk for hec.
func API(name string) forebay.OutputOption {
	return forebay.DriverOption("httpsink.API", func(c *Config) error {
		c.API = name
		return nil
	})
}

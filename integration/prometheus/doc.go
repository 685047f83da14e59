// Package prometheus checks deploy/prometheus and deploy/grafana against the metrics of a running
// program, with Prometheus's own parsers and query engine and with promtool. It is a separate
// module, so that users of the library do not download Prometheus.
//
// The tests use promtool from PATH. If there is none and FOREBAY_PROMTOOL_BUILD is 1, as in make
// integration-all, they build it. If there is still none, the test of promtool is skipped.
package prometheus

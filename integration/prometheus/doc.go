// Package prometheus checks deploy/prometheus and deploy/grafana with Prometheus's own parsers
// and query engine, and with promtool, against the metrics of a running program. It is a separate
// module, so that no user of the library downloads Prometheus.
//
// promtool is the one in PATH. With FOREBAY_PROMTOOL_BUILD=1, as in make integration-all, the tests
// build it if there is none. Without either, the test of promtool is skipped.
package prometheus

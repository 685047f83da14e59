// Package prometheus checks deploy/prometheus and deploy/grafana with Prometheus's own parsers
// and query engine, against the metrics of a running program. It is a module of its own, so that
// no user of the library downloads Prometheus.
package prometheus

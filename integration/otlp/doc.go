// Package otlp shows the Exporter of package otlp against the OpenTelemetry Collector's
// receiver, and its records against OpenTelemetry's own decoder of protobuf.
package otlp

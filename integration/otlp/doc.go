// Package otlp tests the driver of package otlp against the receiver of the OpenTelemetry
// Collector, and its requests against OpenTelemetry's own protobuf decoder.
package otlp

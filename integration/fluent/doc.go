// Package fluent runs the Forward client against real receivers: OpenTelemetry's
// fluentforwardreceiver, in this process, and the FluentServer of npm's
// @fluent-org/logger, if Node and the package are there.
package fluent

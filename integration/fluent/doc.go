// Package fluent runs the Forward client against real receivers: OpenTelemetry's
// fluentforwardreceiver, in this process, and the FluentServer of npm's
// @fluent-org/logger, if Node is there: the test installs the package, once, from
// npm/package-lock.json. Programs with other clients in them are built and run to
// see them start (see beside). The whole takes less than a minute:
//
//	go -C integration/fluent test ./...
package fluent

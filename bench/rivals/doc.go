// Package rivals contains the loggers and writers that are compared with forebay. Each logger is
// used in its fastest way. All log the same records: the keys are "time", "level" and "msg", times
// have the format of RFC 3339 with nanoseconds in UTC, durations are integer nanoseconds, and there
// is no caller.
//
// The package sets package variables of zerolog and phuslu/log when it is imported, because these
// libraries are configured through them.
package rivals

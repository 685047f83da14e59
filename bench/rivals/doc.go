// Package rivals adapts the loggers and writers that forebay is compared with,
// each in its fastest idiom and all set to write the same records: keys "time",
// "level" and "msg", times as RFC 3339 with nanoseconds in UTC, durations as
// integer nanoseconds, no caller.
//
// zerolog and phuslu/log are configured through variables of their packages;
// importing this package sets them.
package rivals

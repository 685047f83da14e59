// Package rivals adapts the loggers and writers of the comparison, each in its fastest idiom and with
// the same records: keys "time", "level" and "msg", times as RFC 3339 with nanoseconds in UTC, durations
// as integer nanoseconds, no caller.
//
// zerolog and phuslu/log are configured through package variables, which importing this package sets.
package rivals

// Package utc sets the local time zone of the process to UTC, so that every
// contender stamps the same number of bytes whatever the machine's zone.
//
// One rival reads the zone once, in its package initialisation. Packages are
// initialised in the order of their import paths as their imports allow, and
// this one needs only time: it runs first. A test looks at that rival's output.
package utc

import "time"

func init() { time.Local = time.UTC }

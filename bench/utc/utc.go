// Package utc sets the local time zone of the process to UTC, so that the times of all contenders
// have the same length in every time zone.
//
// One competitor reads the zone during its package initialization. Packages are initialized in the
// order of their import paths, after their imports. This package imports only time, so it is
// initialized first. A test of that competitor's output checks this.
package utc

import "time"

func init() { time.Local = time.UTC }

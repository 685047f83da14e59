//go:build !linux

package dest

// BeginSync does nothing, because this system cannot start writeback without waiting. Tests replace
// this variable.
var BeginSync = func(string) {}

//go:build !linux

package file

// No space is reserved on this system: fallocate(2) with FALLOC_FL_KEEP_SIZE exists only on Linux.

func reservable(handle) bool        { return false }
func reserve(_ handle, _, _ int64)  {}
func release(handle)                {}
func releaser(handle) (then func()) { return func() {} }

//go:build !linux

package file

func reservable(handle) bool        { return false }
func reserve(_ handle, _, _ int64)  {}
func release(handle)                {}
func releaser(handle) (then func()) { return func() {} }

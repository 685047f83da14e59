//go:build !linux

package main

// beginSync does nothing: Sync is all there is.
var beginSync = func(string) {}

//go:build !linux

package config

func takesFiles(string) bool { return true }

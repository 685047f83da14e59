//go:build !forebay_points

package slablog

func point(string) {}

//go:build !forebay_points

package slablog

const points = false

func point(string) {}

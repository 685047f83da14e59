//go:build !forebay_points

package slab

const points = false

func point(string) {}

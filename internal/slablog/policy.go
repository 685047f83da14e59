package slablog

import (
	"time"

	"github.com/forebay-log/forebay/slab"
)

// A policy is a [slab.WhenFull], as a write that finds no free slab reads it.
type policy struct {
	kind whenFullKind
	wait time.Duration // of whenFullBlockFor and whenFullSpill
}

type whenFullKind uint8

const (
	whenFullBlockFor whenFullKind = iota
	whenFullBlock
	whenFullDropNewest
	whenFullDropOldest
	whenFullSpill
)

// policyOf returns w as a policy.
func policyOf(w slab.WhenFull) policy {
	switch w {
	case slab.Block():
		return policy{kind: whenFullBlock}
	case slab.DropNewest():
		return policy{kind: whenFullDropNewest}
	case slab.DropOldest():
		return policy{kind: whenFullDropOldest}
	case slab.Spill():
		return policy{whenFullSpill, w.MaxWait()}
	}
	return policy{whenFullBlockFor, w.MaxWait()}
}

// waits reports whether a write waits for a time.
func (p policy) waits() bool { return p.kind == whenFullBlockFor || p.kind == whenFullSpill }

// mayWait reports whether a write waits at all.
func (p policy) mayWait() bool { return p.kind == whenFullBlock || p.waits() && p.wait > 0 }

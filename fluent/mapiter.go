package fluent

import (
	"reflect"
	"sync"
)

// mapMemory is what it takes to go through a map of one type: reused, so that
// reading a key and a value allocates nothing.
type mapMemory struct {
	iter     reflect.MapIter
	key, val reflect.Value // addressable
}

// mapMemories are those of one type of maps.
type mapMemories struct {
	once sync.Once
	ok   bool // they can be used
	pool sync.Pool
}

// get returns memory to go through v with; nil: it must be done without, because
// what the values are written as depends on whether they have an address, and
// values of maps have none.
func (m *mapMemories) get(p *plan, v reflect.Value) *mapMemory {
	m.once.Do(func() { m.ok = !needsNoAddress(p.elem) })
	if !m.ok || !v.CanInterface() {
		return nil
	}
	mem, _ := m.pool.Get().(*mapMemory)
	if mem == nil {
		mem = &mapMemory{key: reflect.New(v.Type().Key()).Elem(), val: reflect.New(v.Type().Elem()).Elem()}
	}
	mem.iter.Reset(v)
	return mem
}

// put gives mem back, with nothing of the caller's in it.
func (m *mapMemories) put(mem *mapMemory) {
	mem.iter.Reset(reflect.Value{})
	mem.key.SetZero()
	mem.val.SetZero()
	m.pool.Put(mem)
}

// needsNoAddress reports whether a value of p holds, where it lies, one with a
// method that is called only if it has an address.
func needsNoAddress(p *plan) bool {
	switch {
	case p.op == opMethod:
		return p.byAddr || p.without != nil && needsNoAddress(p.without)
	case p.op == opArray:
		return needsNoAddress(p.elem)
	case p.op == opStruct:
		for i := range p.fields {
			// A zero method may have a receiver that is a pointer, too.
			if p.fields[i].omitZero || needsNoAddress(p.fields[i].plan) {
				return true
			}
		}
	}
	return false
}

package loki

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/values"
)

// A pick describes how an attribute is used outside the line: as a label, as metadata or as the
// tenant. Picks form a tree that corresponds to the groups. They are immutable after the creation
// of the encoder.
type pick struct {
	slot        int              // index of its label in encoder.slots; -1 if it is not a label
	meta        []byte           // its name as metadata; nil if it is not metadata
	from        []byte           // name of the attribute, if meta is set
	tenant      bool             // its value is the tenant
	drop        bool             // the attribute is never written to the line
	promoted    bool             // the attribute is written to the line only if it is a group
	hasPromoted bool             // a pick below this one is promoted
	anywhere    bool             // the pick applies in every group
	children    map[string]*pick // by the key of the attribute
}

// at returns the pick at path below p, and creates it if necessary.
func (p *pick) at(path []string) *pick {
	for _, name := range path {
		if p.children == nil {
			p.children = map[string]*pick{}
		}
		c := p.children[name]
		if c == nil {
			c = &pick{slot: -1}
			p.children[name] = c
		}
		p = c
	}
	return p
}

// named returns the pick of an attribute by its dotted name. A dot may be part of a key or separate
// the key of a group from the key of a member. Therefore the pick is added at all paths that the
// name can mean.
func (p *pick) named(name string) *pick {
	c := p.at(strings.Split(name, "."))
	for i := len(name); i >= 0; i = strings.LastIndexByte(name[:i], '.') {
		in, flat := p, name
		if i < len(name) {
			in, flat = p.at(strings.Split(name[:i], ".")), name[i+1:]
		}
		if in.children[flat] == nil {
			if in.children == nil {
				in.children = map[string]*pick{}
			}
			in.children[flat] = c
		}
	}
	return c
}

// promote sets promoted and hasPromoted in the tree below p, for Line.OutOfLine. It reports whether
// p or a pick below p is promoted.
func (p *pick) promote() bool {
	for _, c := range p.children {
		p.hasPromoted = c.promote() || p.hasPromoted
	}
	p.promoted = p.slot >= 0 || p.meta != nil
	return p.promoted || p.hasPromoted
}

// group returns the node for the attributes of the group with the given name, which is open at p.
// It also contains the picks of p that apply in every group. p may be nil.
func (p *pick) group(name string) *pick {
	if p == nil {
		return nil
	}
	n := &pick{slot: -1, hasPromoted: p.hasPromoted, children: map[string]*pick{}}
	if c := p.children[name]; c != nil {
		for k, v := range c.children {
			n.children[k] = v
		}
	}
	for k, v := range p.children {
		if v.anywhere && n.children[k] == nil {
			n.children[k] = v
		}
	}
	return n
}

// A pair is a name and value of structured metadata. Its bytes are immutable. from is the name of
// the attribute. If two attributes have the same metadata name, the second pair gets a numbered
// name, and base is the name without the number.
type pair struct{ name, value, from, base []byte }

// A picked contains the data of a record outside the line, and scratch memory. It is used by one
// goroutine for one record. A scope has its own picked for the attributes of WithAttrs.
type picked struct {
	labels     [][]byte            // values of labels, by slot; nil without the attribute
	meta       []pair              // structured metadata
	tenant     []byte              // nil without the attribute
	attrs      []slog.Attr         // attributes that stay in the line
	evaluated  []slog.Attr         // attributes with the values of the evaluator
	errorTexts []values.KnownError // errors of the evaluator
	buf        []byte              // memory of values and names, to which the slices of labels, meta and tenant refer
	path       []byte              // names of the open groups, as a prefix of metadata names
	key        []byte              // definition of the stream
	line       []byte              // the line, in JSON form before it is escaped
	expansions int                 // number of groups visited by walk, see maxExpansions

	evaluations int // number of values created by the evaluator, see maxEvaluations
}

// pickedPool contains unused pickeds with their memory, so that encoding does not allocate.
var pickedPool = sync.Pool{New: func() any { return new(picked) }}

// getPicked returns an empty picked for the given number of slots. The caller must call free.
func getPicked(slots int) *picked {
	p := pickedPool.Get().(*picked)
	if cap(p.labels) < slots {
		p.labels = make([][]byte, slots)
	}
	p.labels = p.labels[:slots]
	return p
}

// maxKept is the maximum size in bytes of the buffers of a picked that is returned to the pool.
const maxKept = 64 << 10

// free returns p to the pool, unless its buffers are large. Neither p nor its slices may be used
// afterwards.
func (p *picked) free() {
	if cap(p.buf)+cap(p.line)+cap(p.key) > maxKept || cap(p.meta)+cap(p.attrs)+cap(p.evaluated)+cap(p.errorTexts) > 1024 {
		return
	}
	clear(p.labels)
	clear(p.meta)
	clear(p.attrs)
	clear(p.evaluated)
	clear(p.errorTexts)
	p.evaluated, p.errorTexts = p.evaluated[:0], p.errorTexts[:0]
	p.meta, p.attrs, p.tenant, p.expansions, p.evaluations = p.meta[:0], p.attrs[:0], nil, 0, 0
	p.buf, p.path, p.key, p.line = p.buf[:0], p.path[:0], p.key[:0], p.line[:0]
	pickedPool.Put(p)
}

// walk adds the labels, metadata and tenant that come from attrs to p. attrs are at node of the
// tree of picks; node is nil if no pick applies. r is nil if attrs belong to a scope. depth is the
// number of enclosing groups.
func (e *encoder) walk(p *picked, r *encode.Record, node *pick, attrs []slog.Attr, depth int) {
	for i := range attrs {
		a := &attrs[i]
		var c *pick
		if node != nil {
			c = node.children[a.Key]
		}
		kind := a.Value.Kind()
		if c == nil && !e.metadataAll && a.Key != "" {
			continue
		}
		v := a.Value
		if kind == slog.KindLogValuer {
			v = v.Resolve()
			kind = v.Kind()
		}
		if kind == slog.KindAny {
			if x := v.Any(); x == nil {
				continue
			} else if o, ok := x.(encode.AttrAppender); ok {
				scratch := &cacheOf(r).Scratch
				if attrs, mark, fault := scratch.Collect(o); fault == "" {
					e.walkGroup(p, r, node, c, a.Key, attrs, depth)
					scratch.Release(mark)
				}
				continue
			}
		}
		if kind == slog.KindGroup {
			e.walkGroup(p, r, node, c, a.Key, v.Group(), depth)
			continue
		}
		e.promote(p, r, c, a.Key, v)
	}
}

// walkGroup does the same as walk for the attributes of a group. node is the node of the enclosing
// group, and c the pick of this group, or nil. The attributes of a group without a name belong to
// the enclosing group.
func (e *encoder) walkGroup(p *picked, r *encode.Record, node, c *pick, name string, attrs []slog.Attr, depth int) {
	if p.expansions++; depth >= maxDepth || p.expansions > maxExpansions {
		return
	}
	if name == "" {
		e.walk(p, r, node, attrs, depth+1)
		return
	}
	before := len(p.path)
	if e.metadataAll {
		p.path = append(append(p.path, name...), '.')
	}
	if c != nil || e.metadataAll {
		e.walk(p, r, c, attrs, depth+1)
	}
	p.path = p.path[:before]
}

// promote converts the value of one attribute to text and adds it to p. c is the pick of the
// attribute, or nil.
func (e *encoder) promote(p *picked, r *encode.Record, c *pick, key string, v slog.Value) {
	start := len(p.buf)
	p.buf = e.values.AppendText(p.buf, cacheOf(r), v)
	text := p.buf[start:len(p.buf):len(p.buf)]
	if c != nil {
		if c.tenant {
			p.tenant = text
			return
		}
		if c.slot >= 0 {
			p.labels[c.slot] = text
		}
		if c.meta != nil {
			p.setMeta(c.meta, text, c.from)
			return
		}
		if c.drop {
			return
		}
	}
	if e.metadataAll {
		start := len(p.buf)
		p.buf = append(p.buf, p.path...)
		p.buf = append(p.buf, key...)
		from := p.buf[start:len(p.buf):len(p.buf)]
		start = len(p.buf)
		p.buf = simplify(labelname.Tail(append(p.buf, from...), start), start)
		p.setMeta(p.buf[start:len(p.buf):len(p.buf)], text, from)
	}
}

// setMeta adds a pair of metadata. If an attribute occurs several times, its last value replaces
// the earlier ones. If different attributes have the same metadata name, the later ones get a
// suffix: "_" or a number.
func (p *picked) setMeta(name, value, from []byte) {
	n, taken := 1, false
	for i := range p.meta {
		m := &p.meta[i]
		same := bytes.Equal(m.name, name)
		taken = taken || same
		if m.base != nil {
			same = bytes.Equal(m.base, name)
		}
		if !same {
			continue
		}
		if bytes.Equal(m.from, from) {
			m.value = value
			return
		}
		n++
	}
	if !taken {
		p.meta = append(p.meta, pair{name, value, from, nil})
		return
	}
	base := name
	for n = max(n, 2); p.named(name); n++ {
		start := len(p.buf)
		p.buf = numberedName(p.buf, base, n)
		name = p.buf[start:len(p.buf):len(p.buf)]
	}
	p.meta = append(p.meta, pair{name, value, from, base})
}

// named reports whether p has metadata with the given name.
func (p *picked) named(name []byte) bool {
	for i := range p.meta {
		if bytes.Equal(p.meta[i].name, name) {
			return true
		}
	}
	return false
}

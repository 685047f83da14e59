package loki

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"

	"github.com/forebay-log/forebay/internal/values"
)

// A pick describes how an attribute is used outside the line: as a label, as metadata or as the
// tenant. Picks form a tree that corresponds to the groups of attributes. They do not change after
// the encoder is created.
type pick struct {
	slot        int              // index of the attribute's label in encoder.slots; -1 if the attribute is not a label
	meta        []byte           // the attribute's name as metadata; nil if the attribute is not metadata
	attr        []byte           // name of the attribute, if meta is set
	tenant      bool             // the attribute's value is the tenant
	drop        bool             // the attribute is never written to the line
	promoted    bool             // the attribute is written to the line only if it is a group
	hasPromoted bool             // an attribute in the tree below this pick becomes a label or metadata
	anywhere    bool             // the pick applies in every group
	children    map[string]*pick // by the key of the attribute
}

// at returns the descendant of p with the given path, and creates it if necessary.
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

// named returns the pick of an attribute whose configured name contains dots. A dot may be part of
// a key, or separate the key of a group from the key of a member. Therefore the pick is added at
// all paths that the name can mean.
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

// promote sets the fields promoted and hasPromoted in the tree below p, for Line.OutOfLine. It
// reports whether any attribute in this tree becomes a label or metadata.
func (p *pick) promote() bool {
	for _, c := range p.children {
		p.hasPromoted = c.promote() || p.hasPromoted
	}
	p.promoted = p.slot >= 0 || p.meta != nil
	return p.promoted || p.hasPromoted
}

// group returns the node for the attributes of the group with the given name, which is a member of
// the group of p. The node also contains those picks of p that apply in every group. p may be nil.
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

// rest appends to dst the attributes that are written to the line. The receiver c is the node of
// attrs in the tree of picks. If all attributes are written, rest returns attrs and leaves dst
// unchanged.
func (c *pick) rest(dst, attrs []slog.Attr) (out []slog.Attr, changed bool) {
	for i := range attrs {
		a := attrs[i]
		keep, other := true, false
		if in := c.children[a.Key]; in != nil || a.Key == "" {
			if a.Key == "" {
				in = c
			}
			group := a.Value.Kind() == slog.KindGroup
			if keep = a.Key == "" || !in.drop && (group || !in.promoted); keep && group && in.hasPromoted {
				var left []slog.Attr
				if left, other = in.rest(nil, a.Value.Group()); other {
					a.Value, keep = slog.GroupValue(left...), len(left) > 0
				}
			}
		}
		if !changed && (!keep || other) {
			dst, changed = append(dst, attrs[:i]...), true
		}
		if keep && changed {
			dst = append(dst, a)
		}
	}
	if !changed {
		return attrs, false
	}
	return dst, true
}

// A pair is a name and a value of structured metadata. Its bytes are immutable. The field attr is
// the name of the attribute. If two attributes have the same metadata name, the second pair gets a
// numbered name, and the field base is the name without the number.
type pair struct{ name, value, attr, base []byte }

// The type picked contains the labels, metadata and tenant of a record, and scratch memory. It is
// used by one goroutine for one record. A scope uses a separate one for the attributes of
// WithAttrs.
type picked struct {
	labels     [][]byte            // values of labels, by slot; nil without the attribute
	meta       []pair              // structured metadata
	tenant     []byte              // nil without the attribute
	attrs      []slog.Attr         // attributes that stay in the line
	evaluated  []slog.Attr         // attributes with the values of the evaluator
	errorTexts []values.KnownError // errors of the evaluator
	// buf is the memory of values and names, to which the slices of labels, meta and tenant
	// refer.
	buf        []byte
	path       []byte // names of the open groups, as a prefix of metadata names
	key        []byte // definition of the stream
	line       []byte // the line, in JSON form before it is escaped
	expansions int    // number of groups visited by walk, see values.MaxExpansions

	evaluations int // number of values created by the evaluator, see maxEvaluations
}

// pickedPool contains unused values of type picked with their memory, so that encoding does not
// allocate.
var pickedPool = sync.Pool{New: func() any { return new(picked) }}

// getPicked returns an empty picked value for the given number of slots. The caller must call free.
func getPicked(slots int) *picked {
	p := pickedPool.Get().(*picked)
	if cap(p.labels) < slots {
		p.labels = make([][]byte, slots)
	}
	p.labels = p.labels[:slots]
	return p
}

// maxKept is the maximum size in bytes of the buffers that free returns to the pool.
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

// setMeta adds a pair of metadata. If an attribute occurs several times, its last value replaces
// the earlier ones. If different attributes have the same metadata name, "_" or a number is added
// to the later names.
func (p *picked) setMeta(name, value, attr []byte) {
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
		if bytes.Equal(m.attr, attr) {
			m.value = value
			return
		}
		n++
	}
	if !taken {
		p.meta = append(p.meta, pair{name, value, attr, nil})
		return
	}
	base := name
	for n = max(n, 2); p.named(name); n++ {
		start := len(p.buf)
		p.buf = numberedName(p.buf, base, n)
		name = p.buf[start:len(p.buf):len(p.buf)]
	}
	p.meta = append(p.meta, pair{name, value, attr, base})
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

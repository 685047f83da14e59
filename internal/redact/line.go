package redact

// The methods below are for lines that other programs have written. What they return is
// the same string, and false, if the rules change nothing.

// AppendJSON appends doc, which must be valid JSON, as the rules leave it. It is valid JSON
// again: a pattern sees one name, text or number at a time, never the syntax around them.
// If the rules change nothing, nothing is appended.
func (w *Walker) AppendJSON(r *Rules, dst, doc []byte) (out []byte, changed bool) {
	w.rules, w.left = r, maxNodes
	d := edit{src: unsafeString(doc), out: dst}
	if w.json(&d, w.enter(nil), 0); d.done == 0 {
		return dst, false
	}
	return append(d.out, d.src[d.done:]...), true
}

// Pair redacts the value of a name, which is a text.
func (w *Walker) Pair(r *Rules, name, value string) (string, bool) {
	w.rules, w.left = r, maxNodes
	next, hit := w.step(w.enter(nil), name)
	if hit {
		return r.text, value != r.text
	}
	return w.text(value, next, 0)
}

// Text redacts a text that has no name.
func (w *Walker) Text(r *Rules, s string) (string, bool) {
	w.rules, w.left = r, maxNodes
	return w.text(s, w.enter(nil), 0)
}

// Match replaces what the patterns match in a text, whatever it is.
func (w *Walker) Match(r *Rules, s string) (string, bool) {
	w.rules = r
	return w.match(s)
}

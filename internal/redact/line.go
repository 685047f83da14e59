package redact

// The methods in this file redact lines that other programs have written. If the rules change
// nothing, a method returns its argument and false.

// AppendJSON appends doc, which must be valid JSON, after applying the rules. The result is valid
// JSON: a pattern is matched against one name, text or number at a time, never against the
// surrounding syntax. If the rules change nothing, nothing is appended.
func (w *Walker) AppendJSON(r *Rules, dst, doc []byte) (out []byte, changed bool) {
	w.rules = r
	d := edit{src: unsafeString(doc), out: dst}
	if w.json(&d, w.enter(nil), 0); d.done == 0 {
		return dst, false
	}
	return append(d.out, d.src[d.done:]...), true
}

// Pair redacts value, the text of the attribute with the given name.
func (w *Walker) Pair(r *Rules, name, value string) (string, bool) {
	w.rules = r
	next, hit := w.step(w.enter(nil), name)
	if hit {
		return r.text, value != r.text
	}
	return w.text(value, next, 0)
}

// Text redacts a text that has no name.
func (w *Walker) Text(r *Rules, s string) (string, bool) {
	w.rules = r
	return w.text(s, w.enter(nil), 0)
}

// Match replaces every match of the patterns in s. It does not look for names.
func (w *Walker) Match(r *Rules, s string) (string, bool) {
	w.rules = r
	return w.match(s)
}

// Package conf reads YAML configuration files. It finds all faults of a file in one pass, and
// reports the line, the column and the key of each.
//
// The caller defines the allowed keys. It walks the file with [Node.Fields], [Node.Items] and
// [Node.Text], which record faults in the [File]. In values, "${NAME}" stands for the value of an
// environment variable, "${NAME:-text}" also has a default, and "$${" stands for "${".
package conf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxBytes and maxDepth limit the size and the nesting of a file, because the YAML parser is
// recursive.
const (
	MaxBytes = 1 << 20
	maxDepth = 100
)

// A Fault is an error at a position in a configuration file.
type Fault struct {
	Line, Column int    // counted from 1; 0 if the fault concerns the whole file
	Path         string // the key, such as outputs.loki.level; "" means the file
	Err          error
}

// Error returns the fault as one line, such as "12:7: outputs.loki.level: …".
func (f Fault) Error() string {
	text := strings.Map(func(r rune) rune { // control characters could change the state of a terminal
		if unicode.IsControl(r) && r != '\n' {
			return '\ufffd'
		}
		return r
	}, f.Err.Error())
	if f.Path != "" {
		text = f.Path + ": " + text
	}
	if f.Line == 0 {
		return text
	}
	return fmt.Sprintf("%d:%d: %s", f.Line, f.Column, text)
}

// A File is a parsed file with its faults.
type File struct {
	env     func(string) (string, bool)
	anchors map[string]ast.Node
	faults  []Fault
	unread  int // number of the first line that was not read; 0 if all lines were read
}

// Unread returns the number of the first line that was not read because of a syntax error, or 0 if
// all lines were read.
func (f *File) Unread() int { return f.unread }

// Faults returns the faults in the order of their positions, without duplicates.
func (f *File) Faults() []Fault {
	slices.SortStableFunc(f.faults, func(a, b Fault) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	f.faults = slices.CompactFunc(f.faults, func(a, b Fault) bool { return a.Error() == b.Error() })
	return f.faults
}

// A Node is a value in a File.
type Node struct {
	f    *File
	n    ast.Node // nil if the value is missing
	path string
}

// Parse parses data. The function env looks up environment variables like os.LookupEnv. A byte
// order mark at the start is skipped.
//
// If a value needs quotes but has none, Parse records a fault and reads the value as if it were
// quoted. If the file has another syntax error, the Node contains only the part of the file before
// the error; see [File.Unread].
func Parse(data []byte, env func(string) (string, bool)) (*File, Node) {
	f := &File{env: env, anchors: map[string]ast.Node{}}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	root, at, err := parse(data)
	for range maxUnquoted {
		if err == nil {
			break
		}
		better, why := quoted(data, at, err)
		if better == nil {
			break
		}
		newRoot, next, newErr := parse(better)
		if newErr != nil && isPartOf(data, next.Line, at.Line) { // the added quotes did not fix the error
			break
		}
		f.faults = append(f.faults, Fault{Line: at.Line, Column: at.Column, Err: why})
		data, root, at, err = better, newRoot, next, newErr
	}
	if err != nil {
		f.faults = append(f.faults, Fault{Line: at.Line, Column: at.Column, Err: withHint(data, at, err)})
		if root, f.unread = parseBefore(data, at.Line); root == nil {
			f.unread = 0
			return f, Node{f: f}
		}
	}
	if root != nil {
		if at, deep := tooDeep(root); deep {
			f.faults = append(f.faults, Fault{Line: at.Line, Column: at.Column, Err: fmt.Errorf("it is nested too deeply: use %d levels or fewer", maxDepth)})
			return f, Node{f: f}
		}
		ast.Walk(anchors(f.anchors), root)
	}
	return f, Node{f: f, n: root}
}

func parse(data []byte) (root ast.Node, at token.Position, err error) {
	if len(data) > MaxBytes {
		return nil, at, errors.New("it is longer than 1 MiB, the limit for a configuration")
	}
	if line := bracketsIn(data); line > 0 {
		return nil, token.Position{Line: line, Column: 1}, fmt.Errorf("brackets are nested too deeply: use %d levels or fewer", maxDepth)
	}
	defer func() {
		if recover() != nil {
			root, err = nil, errors.New("it is not YAML")
		}
	}()
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey()) // accept duplicate keys, because Fields reports them as faults
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) {
		if syntax.Token != nil && syntax.Token.Position != nil {
			at = *syntax.Token.Position
		}
		if strings.Contains(syntax.Message, "'\t'") {
			return nil, at, errors.New("there is a tab: YAML is indented with spaces")
		}
		return nil, at, errors.New(syntax.Message)
	}
	if err != nil {
		return nil, at, fmt.Errorf("it is not YAML: %w", err)
	}
	for _, doc := range file.Docs {
		if doc == nil || doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			return nil, position(doc.Body), errors.New("a second document begins here: use one")
		}
		root = doc.Body
	}
	return root, at, nil
}

// bracketsIn returns the number of the first line where brackets are nested more than maxDepth
// deep, or 0. It is called before the parser, which is slow on such files. Brackets within quotes
// are also counted. Each line without indentation resets the count.
func bracketsIn(data []byte) (line int) {
	depth := 0
	line = 1
	for i, c := range data {
		switch c {
		case '[', '{':
			if depth++; depth > maxDepth {
				return line
			}
		case ']', '}':
			depth = max(depth-1, 0)
		case '\n':
			line++
			if i+1 < len(data) && !strings.ContainsRune(" \t\n\r#]}", rune(data[i+1])) {
				depth = 0
			}
		}
	}
	return 0
}

// anchors is a visitor that collects the YAML anchors of a file. The map keys are the names of the
// anchors.
type anchors map[string]ast.Node

func (a anchors) Visit(n ast.Node) ast.Visitor {
	if n, ok := n.(*ast.AnchorNode); ok && n.Name != nil {
		a[n.Name.String()] = n.Value
	}
	return a
}

// tooDeep reports whether any node is nested too deeply, and its position.
func tooDeep(root ast.Node) (at token.Position, deep bool) {
	v := depth{left: maxDepth * 3, at: &at, deep: &deep} // each level of the file needs three nodes: a mapping, a key and a value
	ast.Walk(v, root)
	return at, deep
}

// A depth is a visitor that finds the first node that is nested too deeply. It sets *deep to true
// and *at to the position of that node.
type depth struct {
	left int // number of further levels that are allowed
	at   *token.Position
	deep *bool
}

func (d depth) Visit(n ast.Node) ast.Visitor {
	if d.left--; d.left < 0 {
		*d.at, *d.deep = position(n), true
		return nil
	}
	return d
}

// position returns the position of the first token of a node, or the zero position if the node is
// nil.
func position(n ast.Node) (at token.Position) {
	if n == nil {
		return at
	}
	t := n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 { // the token of a block mapping is its first colon, so use the first key
		t = m.Values[0].Key.GetToken()
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		t = m.Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return at
	}
	return *t.Position
}

// Exists reports whether the file contains the value.
func (n Node) Exists() bool { return n.n != nil }

// Path returns the path of the value's key.
func (n Node) Path() string { return n.path }

// Position returns the line and the column of the value. Both are 0 if the value is missing.
func (n Node) Position() (line, column int) {
	at := position(n.n)
	return at.Line, at.Column
}

// Count returns the number of faults that have been recorded in the whole file.
func (n Node) Count() int { return len(n.f.faults) }

// Faulty reports whether a fault was recorded for the value or for a value within it.
func (n Node) Faulty() bool {
	return slices.ContainsFunc(n.f.faults, func(f Fault) bool {
		rest, ok := strings.CutPrefix(f.Path, n.path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// Faultf reports a fault at the position of the value.
func (n Node) Faultf(format string, args ...any) {
	at := position(n.n)
	n.f.faults = append(n.f.faults, Fault{at.Line, at.Column, n.path, fmt.Errorf(format, args...)})
}

// value returns the node without anchors and tags. If the node is an alias, it returns the value
// that the alias refers to.
func (n Node) value() ast.Node {
	at := n.n
	for range maxDepth {
		switch v := at.(type) {
		case *ast.AnchorNode:
			at = v.Value
		case *ast.TagNode:
			at = v.Value
		case *ast.AliasNode:
			named, ok := n.f.anchors[v.Value.String()]
			if !ok {
				name := v.Value.String()
				if strings.ContainsAny(name, ".*/?[") {
					name += "; write a text that begins with * in quotes"
				}
				n.Faultf("there is no anchor &%s", name)
				return nil
			}
			at = named
		default:
			return at
		}
	}
	n.Faultf("it is an alias of itself")
	return nil
}

// fields returns the members of a mapping. ok is false if n is not a mapping. A null value counts
// as a mapping without members.
func fields(n ast.Node) (values []*ast.MappingValueNode, ok bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	case *ast.NullNode:
		return nil, true
	}
	return nil, false
}

// Empty reports whether the value is missing, null, or a mapping or list without members.
func (n Node) Empty() bool {
	if n.n == nil {
		return true
	}
	switch v := n.value().(type) {
	case *ast.NullNode:
		return true
	case *ast.MappingNode:
		return len(v.Values) == 0
	case *ast.SequenceNode:
		return len(v.Values) == 0
	}
	return false
}

// IsMap reports whether the value is a mapping.
func (n Node) IsMap() bool {
	if n.n == nil {
		return false
	}
	v := n.value()
	_, ok := fields(v)
	return ok && v.Type() != ast.NullType
}

// WrongType reports whether the value is neither a mapping nor null. Fields records a fault for
// such a value.
func (n Node) WrongType() bool {
	if n.n == nil {
		return false
	}
	_, ok := fields(n.value())
	return !ok
}

// Fields calls the function each for every field of a mapping. known lists the allowed names; nil
// allows all names. Unknown and duplicate names are faults. If an unknown name looks like a
// misspelled known name, suggested contains the known name.
func (n Node) Fields(known []string, each func(name string, value Node)) (suggested []string) {
	if n.n == nil {
		return nil
	}
	v := n.value()
	if v == nil {
		return nil
	}
	all, ok := fields(v)
	if !ok {
		if known == nil {
			n.Faultf("it has no fields: write each NAME: VALUE on a separate line")
		} else {
			n.Faultf("it has no fields: write %s", oneOf(known, ": …"))
		}
		return nil
	}
	seen := map[string]int{}
	for _, m := range all {
		key := Node{n.f, m.Key, n.path}
		if m.Key.IsMergeKey() {
			key.Faultf("<< is not supported: an alias replaces a whole value")
			continue
		}
		name := keyText(m.Key)
		line, twice := seen[name]
		switch {
		case twice:
			key.Faultf("%s is given twice, first in line %d", quote(name), line)
			continue
		case known != nil && !slices.Contains(known, name):
			if near := Nearest(name, known); Alike(name, near) {
				suggested = append(suggested, near)
				key.Faultf("%s is unknown; did you mean %s?", quote(name), near)
			} else {
				key.Faultf("%s is unknown; use %s", quote(name), oneOf(known, ""))
			}
			continue
		}
		seen[name] = position(m.Key).Line
		path := name
		if n.path != "" {
			path = n.path + "." + name
		}
		each(name, Node{n.f, m.Value, path})
	}
	return suggested
}

// keyText returns the text of a key without its quotes.
func keyText(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	return k.GetToken().Value
}

// quote formats a name for a message. It quotes a name that is empty, long, or contains spaces or
// quotes.
func quote(name string) string {
	if name == "" || strings.ContainsAny(name, " \t\n\"'") || len(name) > 40 {
		return fmt.Sprintf("%.40q", name)
	}
	return name
}

// oneOf formats a list of names for a message, such as "a, b or c", followed by the text end.
func oneOf(names []string, end string) string {
	switch n := len(names); {
	case n == 0:
		return "nothing here"
	case n == 1:
		return names[0] + end
	default:
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1] + end
	}
}

// Items returns the items of a list. If the value is not a list, it is the only item.
func (n Node) Items() (items []Node) {
	if n.n == nil {
		return nil
	}
	v := n.value()
	list, ok := v.(*ast.SequenceNode)
	if !ok {
		if v == nil || v.Type() == ast.NullType {
			return nil
		}
		return []Node{n}
	}
	for i, item := range list.Values {
		items = append(items, Node{n.f, item, fmt.Sprintf("%s[%d]", n.path, i)})
	}
	return items
}

// colonWithin returns a text such as host:9092, which the YAML parser has read as a mapping with
// one field. Within brackets, the parser splits a text at any colon, although in YAML a key ends
// only at a colon before a space.
func colonWithin(n ast.Node) (text string, ok bool) {
	values, ok := fields(n)
	if !ok || len(values) != 1 {
		return "", false
	}
	v := values[0]
	key, value := v.Key.GetToken(), v.Value.GetToken()
	if key == nil || value == nil || v.Start == nil {
		return "", false
	}
	switch v.Value.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
	default:
		return "", false
	}
	at := v.Start.Position
	if value.Position.Line != at.Line || value.Position.Column != at.Column+1 || key.Position.Column+len([]rune(key.Value)) != at.Column {
		return "", false // a mapping, because there are spaces or quotes around the colon
	}
	return key.Value + ":" + value.Value, true
}

// Text returns the text of a string, a number or a boolean as it is written in the file. Other
// values are faults.
func (n Node) Text() (text string, ok bool) {
	if n.n == nil {
		return "", false
	}
	switch v := n.value().(type) {
	case nil:
		return "", false
	case *ast.NullNode:
		n.Faultf("it has no value; write \"\" for an empty text")
		return "", false
	case *ast.StringNode:
		text = v.Value
	case *ast.LiteralNode:
		text = v.Value.Value
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode:
		if text, ok = colonWithin(v); ok {
			break
		}
		if values, _ := fields(v); len(values) == 1 && values[0].Value.Type() == ast.NullType {
			n.Faultf("it must be one value, not a list or fields; write a text that ends in a colon in quotes: %q", keyText(values[0].Key)+":")
			return "", false
		}
		n.Faultf("it must be one value, not a list or fields")
		return "", false
	default:
		text = v.GetToken().Value
	}
	text, err := n.f.expand(text)
	if err != nil {
		n.Faultf("%w", err)
		return "", false
	}
	return text, true
}

// Scalar returns a value with its YAML type: a string, a bool or a json.Number. A number that
// begins with a zero, such as a postal code, is a string.
func (n Node) Scalar() (value any, ok bool) {
	text, ok := n.Text()
	if tag, is := n.n.(*ast.TagNode); !ok || is && tag.Start.Value == "!!str" {
		return text, ok
	}
	switch v := n.value().(type) {
	case *ast.BoolNode:
		return v.Value, true
	case *ast.IntegerNode:
		if digits := strings.TrimLeft(text, "+-"); len(digits) < 2 || digits[0] != '0' || digits[1] > '9' {
			return json.Number(fmt.Sprint(v.Value)), true
		}
	case *ast.FloatNode:
		if number, err := json.Marshal(v.Value); err == nil {
			return json.Number(number), true
		}
	}
	return text, true
}

// Set passes the text of the value to the function set. If that function returns an error, Set
// records a fault.
func (n Node) Set(set func(text string) error) {
	if text, ok := n.Text(); ok {
		if err := set(text); err != nil {
			n.Faultf("%w", err)
		}
	}
}

// expand replaces the references to environment variables in text, as described in the package
// comment.
func (f *File) expand(text string) (string, error) {
	var sb strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			sb.WriteString(text)
			return sb.String(), nil
		}
		if i > 0 && text[i-1] == '$' {
			sb.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		sb.WriteString(text[:i])
		name, rest, ok := strings.Cut(text[i+2:], "}")
		if !ok {
			return "", errors.New("${ is not closed: write ${NAME}, or $${ for a literal ${")
		}
		name, byDefault, hasDefault := strings.Cut(name, ":-")
		value, found := f.env(name)
		switch {
		case name == "" || strings.ContainsAny(name, "= \t$"):
			return "", fmt.Errorf("${%s} has no name: write ${NAME}, or $${ for a literal ${", name)
		case !found && !hasDefault:
			return "", fmt.Errorf("the variable %s is not set; set it, or write ${%s:-TEXT} for a default", name, name)
		case value == "" && hasDefault:
			value = byDefault
		}
		sb.WriteString(value)
		text = rest
	}
}

package program

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/conf"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// noTLSKey is a key of inputs. At an output it is a fault with a hint.
const noTLSKey = "tls"

// addOutput reads an output. One with faults is there for [pipeConfig.checkTogether] alone.
func (c *pipeConfig) addOutput(name string, v conf.Node) {
	checkName(name, v)
	known := append([]string{"to", "from", "where", noTLSKey}, setting.OptionNames()...)
	if scheme, _, _ := strings.Cut(textOf(v, "to"), ":"); isElsewhere(scheme) != "" && !slices.Contains(schemes(c.dests), scheme) {
		known = nil // so are its options
	}
	it := readItem(v, known)
	o := newOutputConfig()
	out := &o
	out.name, out.item = name, it
	c.outs = append(c.outs, out)
	d, address := c.readTo(it, out)
	if _, ok := it.fields[noTLSKey]; ok && d != nil {
		it.wrong(noTLSKey, "there is no such key here: %s", setting.TLSHint(d.Scheme()))
	}
	for _, o := range setting.Options {
		if _, ok := it.fields[o.Name]; !ok {
			continue
		}
		if d != nil {
			if !o.IsFor(d.Scheme()) {
				it.wrong(o.Name, "it is for %s; this output is %s:", o.Kinds(), d.Scheme())
				continue
			}
			if lacks := o.Lacks(d.Scheme(), it.has); lacks != nil {
				it.wrong(o.Name, "it needs %s", strings.Join(lacks, " or "))
				continue
			}
		}
		out.Given[o.Name] = true
		it.give(o.Name, out.ByName[o.Name], func(name, value string) string { return name + "=" + value })
	}
	if where, ok := it.fields["where"]; ok {
		out.route.where = readWhere(where)
	}
	c.readFrom(it, out)
	text := func(err error) string { return withoutFlags(setting.RedactError(err, address)) }
	if d == nil {
		it.settle(out.check, text, func(error) bool { return false })
	} else {
		c.tryOutput(it, out, d, text)
	}
	out.secrets = sumOf(out.secretFiles()...)
	c.readFallback(it, out)
}

// secretFiles returns the files with keys, passwords and certificates that options name.
func (c *outputConfig) secretFiles() (files []string) {
	for _, o := range setting.Options {
		if o.OfFile && o.Name != "bearer-token-file" { // clients read that again by themselves
			files = append(files, c.Text(o.Name))
		}
	}
	return files
}

// textOf returns the text of a key; "" if it has none.
func textOf(v conf.Node, key string) (text string) {
	v.Fields(nil, func(name string, field conf.Node) {
		if name == key {
			text, _ = field.Text()
		}
	})
	return text
}

// readTo reads the address of an output. It returns no destination where there is none.
func (c *pipeConfig) readTo(it *item, out *outputConfig) (d destination, address string) {
	to, ok := it.fields["to"]
	if !ok {
		if !it.has("to") && !it.node.Broken() {
			it.node.Faultf("to is missing: name the destination, such as to: file:app.log")
		}
		return nil, ""
	}
	it.faulty["to"] = true // unless
	if address, ok = to.Text(); !ok {
		return nil, ""
	}
	d, at, query, err := locate(c.dests, "to", address)
	if err != nil {
		to.Faultf("%s", c.nowhere("to", address, err))
		return nil, address
	}
	out.To = at
	if it.faulty["to"] = query != ""; query != "" {
		to.Faultf("%s: in a file, write options as separate keys, not after a ?", setting.Redact(address))
	}
	return d, address
}

// readFrom reads the inputs whose records an output takes.
func (c *pipeConfig) readFrom(it *item, out *outputConfig) {
	from, ok := it.fields["from"]
	if !ok {
		return
	}
	before := from.Count()
	out.route.from = []string{}
	for _, item := range from.Items() {
		item.Set(func(text string) error {
			out.route.from = append(out.route.from, text)
			if text == "" {
				return errors.New("it is empty: name an input")
			}
			if len(c.declared) > 0 && !c.partial && !slices.Contains(c.declared, text) { // none: that is the fault
				return fmt.Errorf("there is no input %s%s", text, c.inputsInWords())
			}
			return nil
		})
	}
	if len(out.route.from) == 0 && from.Count() == before {
		from.Faultf("it is empty: name at least one input, or leave it out for all")
	}
	it.faulty["from"] = from.Count() > before
}

// tryOutput finds out whether an output can be opened.
func (c *pipeConfig) tryOutput(it *item, out *outputConfig, d destination, text func(error) string) {
	own := out.To
	it.settle(func() error {
		if err := out.check(); err != nil {
			return err
		}
		return firstOf(tryDestination(d, out))
	}, text, func(err error) bool {
		if out.To != own {
			return false
		}
		it.wrong("to", "%s", text(err))
		out.To = soundAddress(d) // so that the options are tried
		return true
	})
	if out.To = own; it.faulty["to"] {
		out.To = ""
	}
}

// soundAddress returns an address of a destination that has no fault.
func soundAddress(d destination) string {
	form, _ := d.Usage()
	return strings.NewReplacer("HOST", "localhost", ":PORT", ":1", "PATH", "x").Replace(form)
}

// readFallback reads the fallback of an output. Several outputs may share one.
func (c *pipeConfig) readFallback(it *item, out *outputConfig) {
	if out.Text("fallback") == "" || c.fallbacks[out.Text("fallback")] != nil {
		return
	}
	f, err := c.options.output(c.dests, "fallback", out.Text("fallback"), ownOption)
	if err == nil {
		d, _, _, _ := locate(c.dests, "fallback", out.Text("fallback"))
		err = tryDestination(d, f)
	}
	if err != nil {
		it.wrong("fallback", "%s", withoutFlags(setting.RedactText(c.nowhere("fallback", out.Text("fallback"), errors.New(setting.RedactError(err, out.Text("fallback")))))))
		return
	}
	c.fallbacks[out.Text("fallback")] = f
}

// schemes returns what the addresses of destinations begin with.
func schemes(dests []destination) (names []string) {
	for _, d := range dests {
		names = append(names, d.Scheme())
	}
	return names
}

// nowhere says of the error of an address that is no destination what may be meant. The lines
// behind the first one list all destinations.
func (c *pipeConfig) nowhere(key, address string, err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	first = strings.TrimPrefix(first, key+" ")
	if scheme, _, _ := strings.Cut(address, ":"); strings.Contains(first, "there is no destination") {
		first += "; did you mean " + conf.Nearest(scheme, schemes(c.dests)) + ":?"
	}
	return first
}

func (c *pipeConfig) inputsInWords() string {
	if len(c.declared) == 0 {
		return ""
	}
	return "; there is " + console.InWords(c.declared, "and")
}

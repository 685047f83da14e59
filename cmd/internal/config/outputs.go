package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/conf"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// noTLSKey is a key that only inputs have. For an output with this key, the error suggests the
// right option.
const noTLSKey = "tls"

// addOutput reads the configuration of one output. An output with faults is added as well, because
// checkConflicts compares all inputs and outputs.
func (c *Pipeline) addOutput(name string, v conf.Node) {
	checkName(name, v)
	known := append([]string{"to", "from", "where", noTLSKey}, setting.OptionNames()...)
	if scheme, _, _ := strings.Cut(textOf(v, "to"), ":"); setting.UnsupportedHint(scheme) != "" && !slices.Contains(schemes(c.Dests), scheme) {
		known = nil // this program does not know the options of the destination, which needs forebay-all
	}
	it := readItem(v, known)
	o := dest.NewSpec()
	out := &o
	out.Name, c.items[out] = name, it
	c.Outs = append(c.Outs, out)
	d, address := c.readTo(it, out)
	if _, ok := it.fields[noTLSKey]; ok && d != nil {
		it.faultf(noTLSKey, "there is no such key here: %s", setting.TLSHint(d.Scheme()))
	}
	for _, o := range setting.Options {
		if _, ok := it.fields[o.Name]; !ok {
			continue
		}
		if d != nil {
			if !o.IsFor(d.Scheme()) {
				it.faultf(o.Name, "it is for %s; this output is %s:", o.Kinds(), d.Scheme())
				continue
			}
			if missing := o.Lacks(d.Scheme(), it.has); missing != nil {
				it.faultf(o.Name, "it needs %s", strings.Join(missing, " or "))
				continue
			}
		}
		out.Given[o.Name] = true
		it.readSetting(o.Name, out.ByName[o.Name], func(name, value string) string { return name + "=" + value })
	}
	if where, ok := it.fields["where"]; ok {
		out.Route.Where = readWhere(where)
	}
	c.readFrom(it, out)
	text := func(err error) string { return WithoutFlags(setting.RedactError(err, address)) }
	if d == nil {
		it.findFaults(out.Check, text, func(error) bool { return false })
	} else {
		c.tryOutput(it, out, d, text)
	}
	out.Secrets = checksumOf(out.SecretFiles()...)
	c.readFallback(it, out)
}

// textOf returns the text of the field named key in v, or "" if the field is missing.
func textOf(v conf.Node, key string) (text string) {
	v.Fields(nil, func(name string, field conf.Node) {
		if name == key {
			text, _ = field.Text()
		}
	})
	return text
}

// readTo reads the address of an output. If the address is missing or unknown, d is nil.
func (c *Pipeline) readTo(it *item, out *dest.Spec) (d dest.Destination, address string) {
	to, ok := it.fields["to"]
	if !ok {
		if !it.has("to") && !it.node.WrongType() {
			it.node.Faultf("to is missing: name the destination, such as to: file:app.log")
		}
		return nil, ""
	}
	it.faulty["to"] = true // faulty until the address is known to be valid
	if address, ok = to.Text(); !ok {
		return nil, ""
	}
	d, at, query, err := dest.Locate(c.Dests, "to", address)
	if err != nil {
		to.Faultf("%s", c.unknownAddress("to", address, err))
		return nil, address
	}
	out.To = at
	if it.faulty["to"] = query != ""; query != "" {
		to.Faultf("%s: in a file, write options as separate keys, not after a ?", setting.Redact(address))
	}
	return d, address
}

// readFrom reads the names of the inputs whose records the output receives.
func (c *Pipeline) readFrom(it *item, out *dest.Spec) {
	from, ok := it.fields["from"]
	if !ok {
		return
	}
	before := from.Count()
	out.Route.From = []string{}
	for _, item := range from.Items() {
		item.Set(func(text string) error {
			out.Route.From = append(out.Route.From, text)
			if text == "" {
				return errors.New("it is empty: name an input")
			}
			if len(c.declared) > 0 && !c.partial && !slices.Contains(c.declared, text) { // if the file has no inputs, only that is reported
				return fmt.Errorf("there is no input %s%s", text, c.inputsInWords())
			}
			return nil
		})
	}
	if len(out.Route.From) == 0 && from.Count() == before {
		from.Faultf("it is empty: name at least one input, or leave it out for all")
	}
	it.faulty["from"] = from.Count() > before
}

// tryOutput checks whether the output can be opened, and stores the faults that prevent it.
func (c *Pipeline) tryOutput(it *item, out *dest.Spec, d dest.Destination, text func(error) string) {
	own := out.To
	it.findFaults(func() error {
		if err := out.Check(); err != nil {
			return err
		}
		return dest.FirstLine(dest.TryDestination(d, out))
	}, text, func(err error) bool {
		if out.To != own {
			return false
		}
		it.faultf("to", "%s", text(err))
		out.To = validAddress(d) // use a valid address to check the other options
		return true
	})
	if out.To = own; it.faulty["to"] {
		out.To = ""
	}
}

// validAddress returns a valid address for the destination d.
func validAddress(d dest.Destination) string {
	form, _ := d.Usage()
	return strings.NewReplacer("HOST", "localhost", ":PORT", ":1", "PATH", "x").Replace(form)
}

// readFallback reads the fallback of an output. Outputs with the same fallback share one dest.Spec.
func (c *Pipeline) readFallback(it *item, out *dest.Spec) {
	if out.Text("fallback") == "" || c.Fallbacks[out.Text("fallback")] != nil {
		return
	}
	f, err := c.Options.Output(c.Dests, "fallback", out.Text("fallback"), dest.OwnOption)
	if err == nil {
		d, _, _, _ := dest.Locate(c.Dests, "fallback", out.Text("fallback"))
		err = dest.TryDestination(d, f)
	}
	if err != nil {
		it.faultf("fallback", "%s", WithoutFlags(setting.RedactText(c.unknownAddress("fallback", out.Text("fallback"), errors.New(setting.RedactError(err, out.Text("fallback")))))))
		return
	}
	c.Fallbacks[out.Text("fallback")] = f
}

// schemes returns the schemes of dests, such as "loki+https", in the same order.
func schemes(dests []dest.Destination) (names []string) {
	for _, d := range dests {
		names = append(names, d.Scheme())
	}
	return names
}

// unknownAddress returns the error for an address with an unknown scheme. It suggests a scheme, and
// omits the list of all destinations in err.
func (c *Pipeline) unknownAddress(key, address string, err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	first = strings.TrimPrefix(first, key+" ")
	if scheme, _, _ := strings.Cut(address, ":"); strings.Contains(first, "there is no destination") {
		first += "; did you mean " + conf.Nearest(scheme, schemes(c.Dests)) + ":?"
	}
	return first
}

func (c *Pipeline) inputsInWords() string {
	if len(c.declared) == 0 {
		return ""
	}
	return "; there is " + console.InWords(c.declared, "and")
}

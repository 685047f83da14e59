package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// checkConflicts reports inputs and outputs that conflict with each other. It ignores settings that
// have faults.
func (c *Pipeline) checkConflicts() {
	w := writers{c: c, files: map[string]string{}}
	for _, out := range c.Outs {
		w.add(out, "to", out.To)
		w.add(out, "dead-letter", "file:"+out.Text("dead-letter"))
	}
	for i, out := range c.Outs {
		for _, other := range c.Outs[:i] {
			if !c.items[out].doubtful("to") && SameDestination(out, other) {
				c.items[out].at("to").Faultf("it is the same output as outputs.%s: it would receive every record twice; remove one", other.Name)
				break
			}
		}
		f := c.Fallbacks[out.Text("fallback")]
		if f == nil {
			continue
		}
		if abs, isNew := w.add(out, "fallback", f.To); isNew { // several outputs may have the same fallback
			delete(w.files, abs)
		}
		for _, other := range c.Outs {
			if other.To == f.To && !strings.HasPrefix(f.To, "file:") {
				c.items[out].at("fallback").Faultf("it is also the destination of outputs.%s: use another one", other.Name)
			}
		}
	}
	listening, states := map[input.Endpoint]string{}, map[string]string{}
	stdins := 0
	for _, in := range c.Inputs {
		if in.Values.Text("type") == "stdin" {
			if stdins++; stdins > 1 {
				c.items[in].at("type").Faultf("another input already reads standard input")
			}
		}
		if dir := filepath.Clean(in.Values.Text("state")); in.Values.Text("state") != "" {
			if other := states[dir]; other != "" {
				c.items[in].at("state").Faultf("inputs.%s uses it: each input needs a separate directory", other)
			}
			states[dir] = in.Name
		}
		if k, is := in.Kind.(*input.Listen); is && !c.items[in].doubtful("listen") {
			ends, _ := k.L.Endpoints()
			for _, end := range ends {
				if strings.HasSuffix(end.Address, ":0") {
					continue
				}
				if other := listening[end]; other != "" && other != in.Name {
					c.items[in].at("listen").Faultf("inputs.%s also listens on %s", other, end.Address)
					break
				}
				listening[end] = in.Name
			}
		}
		c.checkReceived(in)
	}
	c.checkPaths()
	c.checkLoops()
}

// Repeats returns a note for each network output that keeps no records and shares an input with
// other outputs. An input has one position for all its outputs, so records that one output has not
// delivered come again for all of them.
func (c *Pipeline) Repeats() (notes []string) {
	for _, out := range c.Outs {
		scheme, _, _ := strings.Cut(out.To, ":")
		if out.KeepsLines() || scheme == "stdout" || scheme == "stderr" || !slices.Contains(setting.Remote, scheme) {
			continue
		}
		var ins, others []string
		for _, in := range c.Inputs {
			if !in.Repeats() || !out.Route.Selects(in.Name) {
				continue
			}
			for _, other := range c.Outs {
				if other != out && other.Route.Selects(in.Name) {
					ins, others = append(ins, in.Name), append(others, other.Name)
				}
			}
		}
		if others == nil {
			continue
		}
		slices.Sort(ins)
		slices.Sort(others)
		notes = append(notes, fmt.Sprintf("outputs.%s: if it is down when forebay ends, records of %s are repeated, also for %s; a spool prevents that",
			out.Name, console.InWords(slices.Compact(ins), "and"), console.InWords(slices.Compact(others), "and")))
	}
	return notes
}

// checkReceived reports the input if no output receives its records. If an output has a fault in
// the option that selects inputs, nothing is reported.
func (c *Pipeline) checkReceived(in *input.Config) {
	if len(c.Outs) == 0 || c.partial || slices.ContainsFunc(c.Outs, func(out *dest.Spec) bool {
		return out.Route.Selects(in.Name) || c.items[out].doubtful("from")
	}) {
		return
	}
	c.items[in].node.Faultf("no output accepts its records: name the input in the from of an output, or remove it")
}

// writers finds files to which two outputs would write.
type writers struct {
	c     *Pipeline
	files map[string]string // by path: the output and the key that name the file first
}

// add registers an address to which the output out writes. key is the configuration key of the
// address. If the address is not a file, add does nothing. If another output writes to the same
// file, or if an input reads the file, add reports a fault. abs is the absolute path, and isNew
// reports that no other output writes to it.
func (w *writers) add(out *dest.Spec, key, address string) (abs string, isNew bool) {
	rest, is := strings.CutPrefix(address, "file:")
	if !is || rest == "" {
		return "", false
	}
	path := rest
	if key != "dead-letter" {
		var err error
		if path, err = dest.FilePath(rest); err != nil {
			return "", false
		}
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if path == os.DevNull {
		return "", false
	}
	other := w.files[path]
	if other != "" {
		w.c.items[out].at(key).Faultf("it is the same file as %s", other)
	} else {
		w.files[path] = "outputs." + out.Name + "." + key
	}
	for _, in := range w.c.Inputs {
		for _, pattern := range in.Values.List("files") {
			if abs, err := filepath.Abs(pattern); err == nil {
				pattern = abs
			}
			if ok, _ := filepath.Match(pattern, path); ok || pattern == path {
				w.c.items[out].at(key).Faultf("it is one of the files of inputs.%s: its lines would be read again forever", in.Name)
				break
			}
		}
	}
	return path, other == ""
}

package program

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkTogether finds outputs and inputs that do not go together. What has faults of its own
// is looked at as far as it was read.
func (c *pipeConfig) checkTogether() {
	w := writers{c: c, files: map[string]string{}}
	for _, out := range c.outs {
		w.add(out, "to", out.To)
		w.add(out, "dead-letter", "file:"+out.Text("dead-letter"))
	}
	for _, out := range c.outs {
		f := c.fallbacks[out.Text("fallback")]
		if f == nil {
			continue
		}
		if abs, isNew := w.add(out, "fallback", f.To); isNew { // several may share a fallback
			delete(w.files, abs)
		}
		for _, other := range c.outs {
			if other.To == f.To && !strings.HasPrefix(f.To, "file:") {
				out.item.at("fallback").Faultf("it is also the destination of outputs.%s: use another one", other.name)
			}
		}
	}
	listening, states := map[endpoint]string{}, map[string]string{}
	stdins := 0
	for _, in := range c.inputs {
		if in.Values.Text("type") == "stdin" {
			if stdins++; stdins > 1 {
				in.item.at("type").Faultf("another input already reads standard input")
			}
		}
		if dir := filepath.Clean(in.Values.Text("state")); in.Values.Text("state") != "" {
			if other := states[dir]; other != "" {
				in.item.at("state").Faultf("inputs.%s uses it: each input needs a separate directory", other)
			}
			states[dir] = in.name
		}
		if k, is := in.kind.(*listenInput); is && !in.item.doubtful("listen") {
			ends, _ := k.l.endpoints()
			for _, end := range ends {
				if strings.HasSuffix(end.address, ":0") {
					continue
				}
				if other := listening[end]; other != "" && other != in.name {
					in.item.at("listen").Faultf("inputs.%s also listens on %s", other, end.address)
					break
				}
				listening[end] = in.name
			}
		}
		c.checkTaken(in)
	}
	c.checkPlaces()
	c.checkLoops()
}

// checkTaken finds an input whose records no output takes. An output that may take any has no
// say in it.
func (c *pipeConfig) checkTaken(in *inputConfig) {
	if len(c.outs) == 0 || c.partial || slices.ContainsFunc(c.outs, func(out *outputConfig) bool {
		return out.route.takes(in.name) || out.item.doubtful("from")
	}) {
		return
	}
	in.item.node.Faultf("no output accepts its records: name the input in the from of an output, or remove it")
}

// writers are the files that outputs write to.
type writers struct {
	c     *pipeConfig
	files map[string]string // by path: who writes there
}

// add notes that an output writes to a file, if it is one. It returns its path, and whether
// nobody else writes there.
func (w *writers) add(out *outputConfig, key, to string) (abs string, isNew bool) {
	rest, is := strings.CutPrefix(to, "file:")
	if !is || rest == "" {
		return "", false
	}
	path := rest
	if key != "dead-letter" {
		var err error
		if path, err = filePath(rest); err != nil {
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
		out.item.at(key).Faultf("it is the same file as %s", other)
	} else {
		w.files[path] = "outputs." + out.name + "." + key
	}
	for _, in := range w.c.inputs {
		for _, pattern := range in.Values.List("files") {
			if abs, err := filepath.Abs(pattern); err == nil {
				pattern = abs
			}
			if ok, _ := filepath.Match(pattern, path); ok || pattern == path {
				out.item.at(key).Faultf("it is one of the files of inputs.%s: its lines would be read again forever", in.name)
				break
			}
		}
	}
	return path, other == ""
}

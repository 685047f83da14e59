package config

import (
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// checkLoops reports outputs whose records return to the same output through a listener of this
// program. Such records would circulate forever.
func (c *Pipeline) checkLoops() {
	for _, out := range c.Outs {
		for _, key := range []string{"to", "fallback"} {
			to := out.To
			if key == "fallback" {
				f := c.Fallbacks[out.Text("fallback")]
				if f == nil {
					continue
				}
				to = f.To
			}
			if c.items[out].doubtful(key) {
				continue
			}
			for _, in := range c.inputsAt(to) {
				switch {
				case out.Route.Selects(in.Name):
					c.items[out].at(key).Faultf("inputs.%s listens there, and its records go to this output: they would loop forever; use another address, or exclude the input in from", in.Name)
				case c.returnsTo(in, out, map[*input.Config]bool{}):
					c.items[out].at(key).Faultf("inputs.%s listens there, and its records return to this output through other outputs: they would loop forever; use another address", in.Name)
				}
			}
		}
	}
}

// returnsTo reports whether records of the input in reach the output out, directly or through other
// outputs and listeners. seen contains the inputs that were already examined.
func (c *Pipeline) returnsTo(in *input.Config, out *dest.Spec, seen map[*input.Config]bool) bool {
	if seen[in] {
		return false
	}
	seen[in] = true
	if out.Route.Selects(in.Name) {
		return true
	}
	return slices.ContainsFunc(c.Outs, func(next *dest.Spec) bool {
		return !c.items[next].doubtful("to") && next.Route.Selects(in.Name) &&
			slices.ContainsFunc(c.inputsAt(next.To), func(in *input.Config) bool { return c.returnsTo(in, out, seen) })
	})
}

// inputsAt returns the inputs that listen on the address of a destination.
func (c *Pipeline) inputsAt(address string) (at []*input.Config) {
	network, addresses := reaches(address)
	for _, in := range c.Inputs {
		k, is := in.Kind.(*input.Listen)
		if !is || c.items[in].doubtful("listen") {
			continue
		}
		ends, _ := k.L.Endpoints()
		if slices.ContainsFunc(ends, func(e input.Endpoint) bool {
			return e.Network == network && slices.ContainsFunc(addresses, e.IsReachedBy)
		}) {
			at = append(at, in)
		}
	}
	return at
}

// reaches returns the network and the server addresses in the address of a destination, such as tcp
// and host:514 in tcp://host:514.
func reaches(address string) (network string, addresses []string) {
	scheme, rest, _ := strings.Cut(address, ":")
	if scheme == "unix" || strings.HasSuffix(scheme, "+unix") {
		path, _, _ := strings.Cut(rest, "?")
		return "unix", []string{setting.PathIn(strings.TrimPrefix(path, "//"))}
	}
	rest, is := strings.CutPrefix(rest, "//")
	if !is {
		return "", nil
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	port := map[string]string{
		"forward": "24224", "forward+tls": "24224", "loki": "3100", "http": "80", "https": "443", "loki+https": "443", "otlp": "4318", "otlps": "443", "kafka": "9092", "nats": "4222",
	}[scheme]
	for _, host := range strings.Split(rest[strings.LastIndexByte(rest, '@')+1:], ",") {
		addresses = append(addresses, dest.WithPort(host, port))
	}
	return "tcp", addresses
}

// WithPort adds the default port to the servers in the address of a destination.
func WithPort(address string) string {
	network, addresses := reaches(address)
	if network != "tcp" {
		return address
	}
	scheme, rest, _ := strings.Cut(address, "://")
	path := ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		path = rest[i:]
	}
	return scheme + "://" + strings.Join(addresses, ",") + path
}

package program

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// checkLoops finds outputs whose records come back to them through a listener of this
// program: they would go round without end.
func (c *pipeConfig) checkLoops() {
	for _, out := range c.outs {
		for _, key := range []string{"to", "fallback"} {
			to := out.To
			if key == "fallback" {
				f := c.fallbacks[out.Text("fallback")]
				if f == nil {
					continue
				}
				to = f.To
			}
			if out.item.doubtful(key) {
				continue
			}
			for _, in := range c.inputsAt(to) {
				switch {
				case out.route.takes(in.name):
					out.item.at(key).Faultf("inputs.%s listens there, and its records go to this output: they would loop forever; use another address, or exclude the input in from", in.name)
				case c.comesBack(in, out, map[*inputConfig]bool{}):
					out.item.at(key).Faultf("inputs.%s listens there, and its records return to this output through other outputs: they would loop forever; use another address", in.name)
				}
			}
		}
	}
}

// comesBack reports whether records of in reach an input that out takes.
func (c *pipeConfig) comesBack(in *inputConfig, out *outputConfig, seen map[*inputConfig]bool) bool {
	if seen[in] {
		return false
	}
	seen[in] = true
	if out.route.takes(in.name) {
		return true
	}
	return slices.ContainsFunc(c.outs, func(next *outputConfig) bool {
		return !next.item.doubtful("to") && next.route.takes(in.name) &&
			slices.ContainsFunc(c.inputsAt(next.To), func(in *inputConfig) bool { return c.comesBack(in, out, seen) })
	})
}

// inputsAt returns the listeners that a destination sends to.
func (c *pipeConfig) inputsAt(to string) (at []*inputConfig) {
	network, addresses := reaches(to)
	for _, in := range c.inputs {
		k, is := in.kind.(*listenInput)
		if !is || in.item.doubtful("listen") {
			continue
		}
		ends, _ := k.l.endpoints()
		if slices.ContainsFunc(ends, func(e endpoint) bool {
			return e.network == network && slices.ContainsFunc(addresses, e.isReachedBy)
		}) {
			at = append(at, in)
		}
	}
	return at
}

// reaches returns the network and the addresses of the servers of a destination.
func reaches(to string) (network string, addresses []string) {
	scheme, rest, _ := strings.Cut(to, ":")
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
	port := map[string]string{"forward": "24224", "forward+tls": "24224", "loki": "3100", "http": "80", "https": "443", "loki+https": "443"}[scheme]
	for _, host := range strings.Split(rest[strings.LastIndexByte(rest, '@')+1:], ",") {
		addresses = append(addresses, withPort(host, port))
	}
	return "tcp", addresses
}

// An endpoint is where a listener listens.
type endpoint struct{ network, address string }

// isReachedBy reports whether a connection to an address of the same network reaches e.
func (e endpoint) isReachedBy(address string) bool {
	if e.network != "tcp" {
		return absolute(e.address) == absolute(address)
	}
	host, port, err := net.SplitHostPort(address)
	own, ownPort, ownErr := net.SplitHostPort(e.address)
	if err != nil || ownErr != nil || port != ownPort {
		return false
	}
	if host == own {
		return true
	}
	for _, to := range addressesOf(host) {
		if to.IsUnspecified() { // the system connects to itself
			to = netip.IPv6Loopback()
			if host != "::" {
				to = netip.AddrFrom4([4]byte{127, 0, 0, 1})
			}
		}
		for _, at := range addressesOf(own) {
			if at == to || at.IsUnspecified() && (at.Is6() || to.Is4()) && isOwn(to) {
				return true
			}
		}
	}
	return false
}

// addressesOf returns the addresses of a host, as far as they are known without a look-up.
func addressesOf(host string) []netip.Addr {
	name, _ := os.Hostname()
	switch host {
	case "":
		return []netip.Addr{netip.IPv6Unspecified()} // of both versions
	case "localhost":
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	case name:
		return ownAddresses()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	return []netip.Addr{ip.Unmap().WithZone("")}
}

// isOwn reports whether an address is one of this machine.
func isOwn(ip netip.Addr) bool { return ip.IsLoopback() || slices.Contains(ownAddresses(), ip) }

func ownAddresses() (own []netip.Addr) {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr())
		}
	}
	return own
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

package input

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
)

// An Endpoint is the address of a listener.
type Endpoint struct{ Network, Address string }

// IsReachedBy reports whether a connection to address, which is in the network e.Network, reaches
// the listener at e.
func (e Endpoint) IsReachedBy(address string) bool {
	if e.Network != "tcp" {
		return absolute(e.Address) == absolute(address)
	}
	host, port, err := net.SplitHostPort(address)
	ownHost, ownPort, ownErr := net.SplitHostPort(e.Address)
	if err != nil || ownErr != nil || port != ownPort {
		return false
	}
	if host == ownHost {
		return true
	}
	for _, to := range addressesOf(host) {
		if to.IsUnspecified() { // a client that connects to 0.0.0.0 or :: connects to the local machine
			to = netip.IPv6Loopback()
			if host != "::" {
				to = netip.AddrFrom4([4]byte{127, 0, 0, 1})
			}
		}
		for _, at := range addressesOf(ownHost) {
			if at == to || at.IsUnspecified() && (at.Is6() || to.Is4()) && isLocalAddress(to) {
				return true
			}
		}
	}
	return false
}

// addressesOf returns the addresses of a host without a DNS query. The only known names are
// localhost and the name of this machine; for other names it returns nil.
func addressesOf(host string) []netip.Addr {
	name, _ := os.Hostname()
	switch host {
	case "":
		return []netip.Addr{netip.IPv6Unspecified()} // a listener for all IPv4 and IPv6 addresses
	case "localhost":
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	case name:
		return localAddresses()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	return []netip.Addr{ip.Unmap().WithZone("")}
}

// isLocalAddress reports whether ip is an address of this machine.
func isLocalAddress(ip netip.Addr) bool {
	return ip.IsLoopback() || slices.Contains(localAddresses(), ip)
}

// localAddresses returns the addresses of the network interfaces of this machine.
func localAddresses() (addrs []netip.Addr) {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, prefix.Addr())
		}
	}
	return addrs
}

// absolute returns path as an absolute path. If the working directory is unknown, it returns path
// unchanged.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

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

// IsReachedBy reports whether a connection to address, in the network of e, reaches e.
func (e Endpoint) IsReachedBy(address string) bool {
	if e.Network != "tcp" {
		return absolute(e.Address) == absolute(address)
	}
	host, port, err := net.SplitHostPort(address)
	own, ownPort, ownErr := net.SplitHostPort(e.Address)
	if err != nil || ownErr != nil || port != ownPort {
		return false
	}
	if host == own {
		return true
	}
	for _, to := range addressesOf(host) {
		if to.IsUnspecified() { // a connection to 0.0.0.0 or :: reaches the local machine
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

// addressesOf returns the addresses of a host as far as they are known without a DNS query.
func addressesOf(host string) []netip.Addr {
	name, _ := os.Hostname()
	switch host {
	case "":
		return []netip.Addr{netip.IPv6Unspecified()} // matches both IP versions
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

// isOwn reports whether ip is an address of this machine.
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

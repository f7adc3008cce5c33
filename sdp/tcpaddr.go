package sdp

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
)

// tcpAddr returns an address in the form of package net. A zone that is a number
// becomes the name of its interface.
func tcpAddr(a netip.AddrPort) *net.TCPAddr {
	t := net.TCPAddrFromAddrPort(a)
	if t.Zone == "" {
		return t
	}
	if n, err := strconv.Atoi(t.Zone); err == nil {
		if i, err := net.InterfaceByIndex(n); err == nil {
			t.Zone = i.Name
		}
	}
	return t
}

// tcpAddr6 is tcpAddr for a connection that a socket of IPv6 has accepted, where
// addresses of IPv4 are mapped.
func tcpAddr6(a netip.AddrPort) *net.TCPAddr {
	t := tcpAddr(a)
	t.IP = t.IP.To16()
	return t
}

// portSet allocates ports for the dialling endpoints of network "tcp". They are ports
// that need no privilege and that the kernel gives to no connection of TCP by itself. So
// a server's connections by both transports have different ones.
type portSet struct {
	first, end int // the kernel's ports, end being none of them
	next       int
	used       map[uint16]struct{}
}

const (
	firstUserPort = 1024
	portsEnd      = 65536
	minTCPPorts   = 4096
)

// kernelPorts returns the range that the kernel gives as two numbers: the first port of it, and the one behind
// the last. If that leaves few ports of all, the range is empty.
func kernelPorts(text []byte) (first, end int) {
	var last int
	if n, _ := fmt.Sscan(string(text), &first, &last); n != 2 || first < 1 || last < first || last >= portsEnd {
		first, last = 32768, 60999
	}
	first, end = max(first, firstUserPort), max(last+1, firstUserPort)
	if portsEnd-firstUserPort-(end-first) < minTCPPorts {
		return firstUserPort, firstUserPort
	}
	return first, end
}

func (s *portSet) take() (uint16, bool) {
	if s.used == nil {
		text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
		s.first, s.end = kernelPorts(text)
		s.used, s.next = map[uint16]struct{}{}, firstUserPort+rand.IntN(portsEnd-firstUserPort) // random, so that processes mostly differ
	}
	for range portsEnd {
		if s.first <= s.next && s.next < s.end {
			s.next = s.end
		}
		if s.next == portsEnd {
			s.next = firstUserPort
			continue
		}
		port := uint16(s.next)
		s.next++
		if _, ok := s.used[port]; !ok {
			s.used[port] = struct{}{}
			return port, true
		}
	}
	return 0, false
}

func (s *portSet) release(port uint16) { delete(s.used, port) }

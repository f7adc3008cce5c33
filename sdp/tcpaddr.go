package sdp

import (
	"bytes"
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
	free [2]portRange
	next int // counts within both ranges
	used map[uint16]struct{}
}

// portRange is ports from first on, n of them.
type portRange struct{ first, n int }

const (
	firstUserPort = 1024
	portsEnd      = 65536
	minTCPPorts   = 4096
)

// portRanges returns what a range of the kernel's, given as two numbers, leaves of
// all ports. If that is little, it returns all ports.
func portRanges(kernels []byte) [2]portRange {
	first, last := 32768, 60999
	if f := bytes.Fields(kernels); len(f) == 2 {
		a, errA := strconv.Atoi(string(f[0]))
		b, errB := strconv.Atoi(string(f[1]))
		if errA == nil && errB == nil && 0 < a && a <= b && b < portsEnd {
			first, last = a, b
		}
	}
	low := portRange{firstUserPort, max(first-firstUserPort, 0)}
	high := portRange{max(last+1, firstUserPort), 0}
	high.n = portsEnd - high.first
	if low.n+high.n < minTCPPorts {
		return [2]portRange{{firstUserPort, portsEnd - firstUserPort}}
	}
	return [2]portRange{low, high}
}

func (s *portSet) take() (uint16, bool) {
	if s.used == nil {
		kernels, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
		s.used, s.free = map[uint16]struct{}{}, portRanges(kernels)
		s.next = rand.IntN(portsEnd) // random, so that processes mostly differ
	}
	all := s.free[0].n + s.free[1].n
	for range all {
		i := s.next % all
		s.next = i + 1
		port := s.free[0].first + i
		if i >= s.free[0].n {
			port = s.free[1].first + i - s.free[0].n
		}
		if _, ok := s.used[uint16(port)]; !ok {
			s.used[uint16(port)] = struct{}{}
			return uint16(port), true
		}
	}
	return 0, false
}

func (s *portSet) release(port uint16) { delete(s.used, port) }

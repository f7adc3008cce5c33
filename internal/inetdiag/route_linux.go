package inetdiag

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// RouteTo looks up the route to an address. If there is none, the address is not
// local, and there is no error. Loopback addresses are local; the kernel is not
// asked.
func (k *Kernel) RouteTo(a netip.Addr) (Route, error) {
	a = Destination(a)
	if a.IsLinkLocalUnicast() && a.Is6() && a.Zone() == "" {
		return Route{}, nil // the kernel does not connect there
	}
	if a.IsLoopback() {
		source := netip.IPv6Loopback()
		if a.Is4() {
			source = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		return Route{Local: true, Source: source, Interface: loopbackIndex}, nil
	}
	through, err := zoneIndex(a)
	if err != nil {
		return Route{}, err
	}
	asker := k.take()
	defer k.give(asker)
	var r Route
	err = asker.ask(route, routeRequest(a, through), func(payload []byte) (err error) {
		r, err = parseRoute(payload)
		return err
	})
	if r.Local && !r.Source.IsValid() {
		r.Source = a.WithZone("")
	}
	if unreachable(err) {
		return Route{}, nil
	}
	return r, err
}

// unreachable reports whether an error means that there is no route to an address.
func unreachable(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EACCES, syscall.EINVAL, syscall.ENETDOWN, syscall.ENODEV:
		return true // no route, or one of type unreachable, prohibit or blackhole
	}
	return false
}

// zoneIndex returns the index of the interface that an address' zone names, or 0
// without a zone.
func zoneIndex(a netip.Addr) (int, error) {
	if a.Zone() == "" {
		return 0, nil
	}
	if n, err := strconv.Atoi(a.Zone()); err == nil {
		return n, nil
	}
	i, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return 0, fmt.Errorf("inetdiag: zone %s: %w", a.Zone(), err)
	}
	return i.Index, nil
}

// routeRequest asks for the route to a, through an interface if that is not 0:
//
//	16  12  rtmsg: family, length of the address in bits, zeros, and 4 bytes of flags
//	28   4  attribute: length, RTA_DST
//	32      the address
func routeRequest(a netip.Addr, through int) []byte {
	b := NewRequest(unix.RTM_GETROUTE, 0, unix.SizeofRtMsg)
	b[headerSize] = Family(a)
	b[headerSize+1] = byte(a.BitLen())
	if a.Is6() {
		// This asks for the entry itself rather than the result of using it. A connection
		// to an address of this machine appears to come through the interface that has the
		// address.
		order.PutUint32(b[headerSize+8:], unix.RTM_F_FIB_MATCH)
	}
	b = AppendAttribute(b, unix.RTA_DST, a.AsSlice())
	if through != 0 {
		b = AppendAttribute(b, unix.RTA_OIF, order.AppendUint32(nil, uint32(through)))
	}
	return b
}

// AppendAttribute appends an attribute to a message.
func AppendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = order.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = order.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

func parseRoute(b []byte) (Route, error) {
	if len(b) < unix.SizeofRtMsg {
		return Route{}, fmt.Errorf("inetdiag: route of %d bytes: %w", len(b), syscall.EBADMSG)
	}
	r := Route{Local: b[7] == unix.RTN_LOCAL}
	for b = b[unix.SizeofRtMsg:]; len(b) >= unix.SizeofRtAttr; {
		size := int(order.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return Route{}, fmt.Errorf("inetdiag: attribute of %d bytes in %d: %w", size, len(b), syscall.EBADMSG)
		}
		value := b[unix.SizeofRtAttr:size]
		switch order.Uint16(b[2:]) {
		case unix.RTA_PREFSRC:
			r.Source, _ = netip.AddrFromSlice(value)
		case unix.RTA_OIF:
			if len(value) == 4 {
				r.Interface = int(order.Uint32(value))
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return r, nil
}

// Family returns the family of an address.
func Family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

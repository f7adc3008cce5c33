package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pires/go-proxyproto"
)

const (
	// headerTime is how long a header of the PROXY protocol may take, to come or to be taken.
	headerTime = 5 * time.Second
	// maxHeaderV1 and maxHeaderV2 are how long a header may be. That of version 2 has room for addresses and for
	// what else balancers send.
	maxHeaderV1 = 107
	maxHeaderV2 = 4096
	// minHeader is the length of the shortest header, PROXY UNKNOWN with its end of line.
	minHeader = 15
	// startV2 is the part of a header of version 2 that has its length.
	startV2 = 16
)

var startV1 = []byte("PROXY ")

// readHeader reads a header of the PROXY protocol, and nothing of what follows it.
func readHeader(r io.Reader) (*proxyproto.Header, error) {
	buf := make([]byte, minHeader, startV2)
	for n := 0; n < len(buf); {
		k, err := r.Read(buf[n:])
		n += k
		if !begins(buf[:n], startV1) && !begins(buf[:n], proxyproto.SIGV2) {
			return nil, errors.New("no header of the PROXY protocol")
		}
		if err != nil && n < len(buf) {
			return nil, torn(err)
		}
	}
	var err error
	if buf[0] == startV1[0] {
		buf, err = restV1(r, buf)
	} else {
		buf, err = restV2(r, buf)
	}
	if err != nil {
		return nil, torn(err)
	}
	h, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(buf)))
	if err != nil {
		return nil, err
	}
	if h.TransportProtocol.IsDatagram() {
		return nil, errors.New("the header is about datagrams")
	}
	return h, nil
}

// begins reports whether b is the beginning of what starts with start.
func begins(b, start []byte) bool {
	n := min(len(b), len(start))
	return bytes.Equal(b[:n], start[:n])
}

// restV1 reads up to the end of the line, byte by byte, since what follows is the target's.
func restV1(r io.Reader, buf []byte) ([]byte, error) {
	for buf[len(buf)-1] != '\n' {
		if len(buf) == maxHeaderV1 {
			return nil, fmt.Errorf("the header has more than %d bytes", maxHeaderV1)
		}
		buf = append(buf, 0)
		if _, err := io.ReadFull(r, buf[len(buf)-1:]); err != nil {
			return nil, err
		}
	}
	return buf, nil
}

// restV2 reads as much as the header says.
func restV2(r io.Reader, buf []byte) ([]byte, error) {
	buf = buf[:startV2]
	if _, err := io.ReadFull(r, buf[minHeader:]); err != nil {
		return nil, err
	}
	rest := int(binary.BigEndian.Uint16(buf[startV2-2:]))
	if startV2+rest > maxHeaderV2 {
		return nil, fmt.Errorf("the header has more than %d bytes", maxHeaderV2)
	}
	buf = append(buf, make([]byte, rest)...)
	_, err := io.ReadFull(r, buf[startV2:])
	return buf, err
}

// torn returns the error about a header of which the end is missing.
func torn(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the header is torn")
	}
	return err
}

// within calls do, which uses c, and ends it when the time is over, or when ctx ends.
func within(ctx context.Context, most time.Duration, c net.Conn, do func() error) error {
	if err := c.SetDeadline(time.Now().Add(most)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	err := do()
	if !stop() {
		return errDrainEnded
	}
	if err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// takeHeader reads the header of a client, if its map wants one, and notes whom it names. It returns the cause for which
// the client is refused, or "".
func takeHeader(ctx context.Context, e *lastLine) string {
	if !e.m.wantsHeader(e.client) {
		return ""
	}
	if !from(e.m.Proxies, e.client.RemoteAddr()) {
		return acceptProxy // the map has changed since the client came
	}
	var h *proxyproto.Header
	err := within(ctx, headerTime, e.client, func() (err error) {
		h, err = readHeader(e.client)
		return err
	})
	if err != nil {
		return acceptProxy + ": " + dialCause(err)
	}
	client, to, ok := h.TCPAddrs()
	if h.Command.IsProxy() && ok {
		e.named, e.to = client, to
	}
	if len(e.m.Sources) > 0 && !from(e.m.Sources, e.address()) {
		return allowFrom
	}
	return ""
}

// wantsHeader reports whether a client must send a header.
func (m *Map) wantsHeader(c net.Conn) bool { return len(m.Proxies) > 0 && networkOf(c) == networkTCP }

// from reports whether an address is in one of several networks.
func from(networks []netip.Prefix, a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// sendHeader sends a target the header that its map wants: for a client, or for a check, which has none.
func sendHeader(ctx context.Context, target net.Conn, m *Map, e *lastLine) error {
	var version byte
	switch {
	case m.SendProxyV2:
		version = 2
	case m.SendProxy:
		version = 1
	default:
		return nil
	}
	var client, to net.Addr
	if e != nil {
		client, to = e.address(), e.client.LocalAddr()
		if e.to != nil {
			to = e.to
		}
		if networkOf(e.client) != networkTCP {
			client = nil // the protocol has no addresses of these
		}
	}
	h, err := proxyproto.HeaderProxyFromAddrs(version, client, to).Format()
	if err != nil {
		return err
	}
	return within(ctx, headerTime, target, func() error {
		_, err := target.Write(h)
		return err
	})
}

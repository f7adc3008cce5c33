package sdp

import (
	"context"
	"fmt"
	"syscall"
)

// ResolveAddr returns what "host:port" means on this Host: the address that Addr of a
// listener there returns. Nothing is dialled, but a name server may be asked, until ctx
// ends. If the fabric has no such host, the error wraps EHOSTUNREACH.
func (h *Host) ResolveAddr(ctx context.Context, address string) (*Addr, error) {
	name, port, err := splitAddress(ctx, address)
	if err != nil {
		return nil, opError(opResolve, nil, nil, err)
	}
	h, done, err := h.use()
	if err != nil {
		return nil, opError(opResolve, nil, &Addr{name, port}, err)
	}
	defer done()
	host, ok := h.findHost(ctx, name)
	if !ok {
		err := fmt.Errorf("no node %q in this fabric, which has %s: %w", name, h.stack.fabric.HostNames(), syscall.EHOSTUNREACH)
		return nil, opError(opResolve, nil, &Addr{name, port}, err)
	}
	return &Addr{h.hostName(host), port}, nil
}

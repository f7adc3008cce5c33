package sdp

import (
	"context"
)

// ResolveAddr returns what "host:port" means on this Fabric: the address that Addr of a
// listener there returns. Nothing is dialled, but a name server may be asked, until ctx
// ends. If the fabric has no such host, the error wraps EHOSTUNREACH.
func (f *Fabric) ResolveAddr(ctx context.Context, address string) (*Addr, error) {
	name, port, err := splitAddress(ctx, address)
	if err != nil {
		return nil, opError(opResolve, nil, nil, err)
	}
	f, done, err := f.use(ctx)
	if err != nil {
		return nil, opError(opResolve, nil, &Addr{name, port}, err)
	}
	defer done()
	host, err := f.stack.fabric.LookupHost(ctx, name)
	if err != nil {
		return nil, opError(opResolve, nil, &Addr{name, port}, err)
	}
	return &Addr{f.hostName(host), port}, nil
}

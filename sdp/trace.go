package sdp

import (
	"context"
	"fmt"
	"net/http/httptrace"
)

// traced calls connect between ConnectStart and ConnectDone of the context's
// httptrace.ClientTrace, if it has one.
func traced(ctx context.Context, network string, address fmt.Stringer, connect func() (*Conn, error)) (*Conn, error) {
	t := httptrace.ContextClientTrace(ctx)
	if t != nil && t.ConnectStart != nil {
		t.ConnectStart(network, address.String())
	}
	c, err := connect()
	if t != nil && t.ConnectDone != nil {
		t.ConnectDone(network, address.String(), err)
	}
	return c, err
}

// verbatim is an address as the caller has written it.
type verbatim string

func (v verbatim) String() string { return string(v) }

// forNames returns ctx for a resolver. Of the hooks it has those of names only: net reports
// no connections to name servers either.
func forNames(ctx context.Context) context.Context {
	t := httptrace.ContextClientTrace(ctx)
	if t == nil {
		return ctx
	}
	names := &httptrace.ClientTrace{DNSStart: t.DNSStart, DNSDone: t.DNSDone}
	if names.DNSStart == nil {
		names.DNSStart = func(httptrace.DNSStartInfo) {} // without any hook, those of ctx stay
	}
	return httptrace.WithClientTrace(untraced{ctx}, names)
}

// untraced is a context without its httptrace.ClientTrace, to which another one would add.
type untraced struct{ context.Context }

func (u untraced) Value(key any) any {
	v := u.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}

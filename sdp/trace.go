package sdp

import (
	"context"
	"errors"
	"net/http/httptrace"
)

// traced calls connect between ConnectStart and ConnectDone of the context's
// httptrace.ClientTrace, if it has one.
func traced(ctx context.Context, network, address string, connect func() (*Conn, error)) (*Conn, error) {
	t := httptrace.ContextClientTrace(ctx)
	if t != nil && t.ConnectStart != nil {
		t.ConnectStart(network, address)
	}
	c, err := connect()
	if t != nil && t.ConnectDone != nil {
		t.ConnectDone(network, address, err)
	}
	return c, err
}

// untraced hides the httptrace of a context.
type untraced struct{ context.Context }

func (u untraced) Value(key any) any {
	v := u.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}

// traceOfNet is a context whose trace learns from net what it would without the dial by
// SDP in between: a connection that is taken is one that is done.
func traceOfNet(ctx context.Context) context.Context {
	t := httptrace.ContextClientTrace(ctx)
	if t == nil {
		return ctx
	}
	return httptrace.WithClientTrace(untraced{ctx}, &httptrace.ClientTrace{
		DNSStart: t.DNSStart, DNSDone: t.DNSDone, ConnectStart: t.ConnectStart,
		ConnectDone: func(network, address string, err error) {
			if t.ConnectDone == nil {
				return
			}
			if errors.Is(err, errTaken) {
				err = nil
			}
			t.ConnectDone(network, address, err)
		},
	})
}

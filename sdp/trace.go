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

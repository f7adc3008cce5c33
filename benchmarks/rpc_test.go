package benchmarks

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// raw has gRPC carry bytes as they are.
type raw struct{}

func (raw) Name() string                  { return "raw" }
func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// rpcServer returns a gRPC server that answers each call with its argument.
func rpcServer() *grpc.Server {
	return grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var b []byte
		if err := s.RecvMsg(&b); err != nil {
			return err
		}
		return s.SendMsg(&b)
	}))
}

// callOnce returns calls of gRPC with size bytes, by a connection of their own.
func (p *pair) callOnce(network string, size int) (request, error) {
	c, err := grpc.NewClient("passthrough:///peer", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return p.dial(network, p.rpc[network]) }),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		return request{}, err
	}
	in := make([]byte, size)
	return request{c, func() error {
		var out []byte
		err := c.Invoke(context.Background(), "/echo/echo", &in, &out)
		if err == nil && len(out) != size {
			err = fmt.Errorf("%d bytes came back of %d", len(out), size)
		}
		return err
	}}, nil
}

// Command grpc serves gRPC over SDP, and asks itself, by one changed line each:
//
//	go run ./grpc
package main

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/ntbnet/ntbnet/sdp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	ln, err := sdp.Listen("sdp", ":0") // was: net.Listen("tcp", ":0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(ln)
	defer server.Stop()

	conn, err := grpc.NewClient("passthrough:///"+ln.Addr().String(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return sdp.DialContext(ctx, "sdp", address) // without this option it is by TCP
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials())) // SDP stays on this machine or the bridge
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the server is", answer.Status)
}

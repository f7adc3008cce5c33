// Command ringnode is a node of a ring of hosts. It asks each other node, whether that is a neighbour or some
// hops away, and serves until it is interrupted:
//
//	for n in 1 2 3 4; do go run ./ringnode "ring:demo?node=$n&nodes=4" & done; wait
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

const port = "7701"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: ringnode FABRIC")
		os.Exit(2)
	}
	f, err := sdp.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	ln, err := f.Listen("sdp", ":"+port)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range f.Nodes() {
		if n.Up && n.Hops == 0 {
			continue // this one
		}
		go func() {
			line, err := ask(f, fmt.Sprintf("node%d", n.Number))
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(line)
		}()
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(c, "%s answers %s\n", c.LocalAddr(), c.RemoteAddr())
		c.Close()
	}
}

// ask dials until the node is there, for a minute at most.
func ask(f *sdp.Fabric, node string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		c, err := f.DialContext(ctx, "sdp", net.JoinHostPort(node, port))
		if err == nil {
			defer c.Close()
			line, err := io.ReadAll(c)
			return string(line), err
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EHOSTUNREACH) {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

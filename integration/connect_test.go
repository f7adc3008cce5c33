//go:build linux

package integration

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// playConnect listens by package net and by SDP, and sends one byte back on each connection.
func playConnect(p *self) error {
	var accepting sync.WaitGroup
	var listeners []net.Listener
	var addresses []string
	for _, listen := range []func(network, address string) (net.Listener, error){net.Listen, sdp.Listen} {
		ln, err := listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		listeners, addresses = append(listeners, ln), append(addresses, ln.Addr().String())
		accepting.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				accepting.Go(func() {
					defer c.Close()
					_, _ = io.CopyN(c, c, 1) // the dialling process reports errors
				})
			}
		})
	}
	p.printf("%s", strings.Join(addresses, " "))
	p.stay()
	for _, ln := range listeners {
		ln.Close()
	}
	accepting.Wait()
	return nil
}

// connector connects to a server of playConnect again and again.
type connector struct {
	dial  func(network, address string) (net.Conn, error)
	at    string
	turns []float64 // nanoseconds of a connection
}

// turn makes a hundred connections, each with a byte to and fro.
func (c *connector) turn(b *testing.B) {
	const dials = 100
	begin := time.Now()
	for range dials {
		if err := c.once(); err != nil {
			b.Fatal(err)
		}
	}
	c.turns = append(c.turns, float64(time.Since(begin).Nanoseconds())/dials)
}

func (c *connector) once() error {
	conn, err := c.dial("tcp", c.at)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{7}); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

func (c *connector) median() float64 {
	slices.Sort(c.turns)
	return c.turns[len(c.turns)/2]
}

// Connecting by network "tcp" to another process, a byte to and fro, and closing: by package
// net and by sdp in turns, so that what else runs counts for both. The medians of the turns
// are reported, for one connection, and how many times as fast sdp is.
func BenchmarkConnect(b *testing.B) {
	newFabric(b)
	server := startPeer(b, "connect", nil)
	addresses := strings.Fields(server.readLine())
	require.Len(b, addresses, 2)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		b.Run(host, func(b *testing.B) {
			var at [2]string
			for i, a := range addresses {
				_, port, err := net.SplitHostPort(a)
				require.NoError(b, err)
				at[i] = net.JoinHostPort(host, port)
			}
			byNet, bySDP := &connector{dial: net.Dial, at: at[0]}, &connector{dial: sdp.Dial, at: at[1]}
			before := sdp.DefaultStats().Networks
			for b.Loop() {
				byNet.turn(b)
				bySDP.turn(b)
			}
			require.EqualValues(b, 100*len(bySDP.turns), since(before).DialSDP)
			b.ReportMetric(byNet.median(), "net-ns")
			b.ReportMetric(bySDP.median(), "sdp-ns")
			b.ReportMetric(byNet.median()/bySDP.median(), "times")
		})
	}
	server.end()
}

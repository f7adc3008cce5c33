//go:build linux

package integration

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// A proxy that is killed cannot tell anybody. The other one of the pair must not
// take that for the end of the stream.
func TestKilledProxyIsAResetBehindTheOther(t *testing.T) {
	for name, killFront := range map[string]bool{"front": true, "back": false} {
		t.Run(name, func(t *testing.T) {
			client, server, p := joined(t)
			victim, from, to := p.front, client, server
			if !killFront {
				victim, from, to = p.back, server, client
			}
			sending := make(chan struct{})
			go func() {
				defer close(sending)
				io.Copy(from, endless{})
			}()
			if _, err := io.ReadFull(to, make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			victim.signal(syscall.SIGKILL)
			if n, err := io.Copy(io.Discard, to); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read %d bytes more, then %v; want a reset", n, err)
			}
			from.Close()
			<-sending
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// The proxy that is left serves again when the other one is back.
func TestPairWorksAgainAfterTheBackIsReplaced(t *testing.T) {
	target := echo(t)
	p := startPair(t, target)
	mustEcho(t, p.front.dial(0), "before")
	p.back.signal(syscall.SIGKILL)
	p.back.status()
	front := net.JoinHostPort(p.host, p.port)
	// Nothing listens behind it now. The reset may come before Dial returns.
	if c, err := net.Dial("tcp", front); err == nil {
		c.SetDeadline(time.Now().Add(testTimeout))
		if n, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("with nobody behind, the client reads %d bytes, then %v; want a reset", n, err)
		}
		c.Close()
	}
	startProxy(t, fabric(t), nil, p.back.listening[0]+"="+target)
	eventually(t, "it serves again", func() bool { return answers(front) })
}

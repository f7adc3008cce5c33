package listen

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// refusals is a host that only hears of versions.
type refusals struct {
	Host
	refused chan<- error
}

func (r refusals) Refuse(err error) { r.refused <- err }

// The peer has the next version. What it says is one more, and what it hears one less, than
// this version, as which it counts itself.
func TestBothSidesOfADialSayBothVersions(t *testing.T) {
	leak.Check(t)
	refused := make(chan error, 2)
	table := NewTable()
	table.Host = refusals{refused: refused}
	l := newLink(t, table, nil)
	l.far.skew.Store(-1)
	ln := table.Listen(7, Config{})
	defer ln.Close()
	for _, network := range []hello.Network{hello.SDP, hello.OverTCP} {
		m := hello.Hello{Version: hello.Version + 1, Network: network, From: 40000, To: 7}
		_, err := l.far.dials.Dial(context.Background(), time.Now().Add(testTimeout), m)
		require.ErrorIs(t, err, syscall.EPROTONOSUPPORT)
		require.ErrorContains(t, err, fmt.Sprintf("version %d here, of %d at the peer: update the side with the lower one", hello.Version, hello.Version-1))
		why := <-refused
		require.ErrorContains(t, why, "node1.2 dials")
		require.ErrorContains(t, why, fmt.Sprintf("version %d here, of %d at the peer: update the side with the lower one", hello.Version, hello.Version+1))
	}
	require.Empty(t, refused)
	l.far.skew.Store(0)
	l.mustDial(t, 7).Abort() // the link has stayed up
}

//go:build linux && (amd64 || arm64)

package sdp

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// mailbox is a service, and its handler, that keeps what comes.
type mailbox chan []byte

func (m mailbox) Open(*link.Peer) link.Handler { return m }
func (m mailbox) Down(error)                   {}

func (m mailbox) Message(b []byte) error {
	m <- bytes.Clone(b)
	return nil
}

// A process that dials with messages of another version hears of both versions, and so
// does the one that it dials.
func TestAHostSaysWhichVersionItRefuses(t *testing.T) {
	leak.Check(t)
	name := "shm:" + fabrictest.Name(t)
	joined, err := Open(name)
	require.NoError(t, err)
	defer joined.Close()
	require.Zero(t, joined.Stats().Refused)

	spec, err := spec.Parse(name)
	require.NoError(t, err)
	answers := make(mailbox, 1)
	f, err := fabric.Open(spec, func(f *fabric.Fabric) { f.Node().Register(link.ServiceSDP, answers) })
	require.NoError(t, err)
	defer f.Close()
	peer, err := f.Peer(t.Context(), joined.stack.fabric.Node().ID(), nil)
	require.NoError(t, err)
	dial := hello.Hello{Version: hello.Version + 1, From: 1, To: 1, Endpoint: hello.Endpoint{Slot: 3, Gen: 9}}
	require.NoError(t, peer.Send(link.ServiceSDP, dial.Marshal()))
	answer := <-answers
	require.Equal(t, []byte{3, hello.Version, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, byte(hello.BadVersion), 0}, answer[:14])
	refused := joined.Stats().Refused
	require.EqualValues(t, 1, refused.Count)
	require.Contains(t, refused.Last, f.Node().ID().String()+" dials")
	require.Contains(t, refused.Last, fmt.Sprintf("version %d here, of %d at the peer", hello.Version, hello.Version+1))
}

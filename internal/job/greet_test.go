package job

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/ntbnet/ntbnet/internal/activemsg"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// dialOpening begins to open PE 0 of 2, and connects to it as another PE does. opened gets
// the error of Open.
func dialOpening(t *testing.T, fabric string) (c net.Conn, f *sdp.Fabric, opened chan error) {
	t.Helper()
	opened = make(chan error, 1)
	go func() {
		_, err := Open(context.Background(), Options{Given: true, N: 2, Job: "j", Heap: 8 << 20, Fabric: fabric})
		opened <- err
	}()
	f, err := sdp.Open(fabric)
	require.NoError(t, err)
	w := &World{opts: options{Options: Options{Job: "j"}}}
	for c == nil { // until it listens
		c, _ = f.Dial(sdp.Network, "localhost:"+strconv.Itoa(w.port(0)))
	}
	return c, f, opened
}

// A PE that does not fit is answered, however soon the other one gives up.
func TestAPEThatDoesNotFitIsAnswered(t *testing.T) {
	leak.Check(t)
	for i := range 50 {
		c, fabric, opened := dialOpening(t, fmt.Sprintf("mem:%s%d", fabrictest.Name(t), i))
		require.NoError(t, writeHello(c, &hello{Version: activemsg.Version, Job: "j", PE: 1, PEs: 3}))
		h, err := readHello(c)
		require.NoError(t, err)
		require.Contains(t, h.Refused, "PE 0 of 2 here, PE 1 of 3 there")
		require.ErrorContains(t, <-opened, "PE 0 of 2 here, PE 1 of 3 there")
		c.Close()
		fabric.Close()
	}
}

// A PE of another version may say other things in other ways. Both say both versions.
func TestAPEOfAnotherVersionIsAnswered(t *testing.T) {
	leak.Check(t)
	for _, more := range []string{`"pes":2`, `"pe":"one","place":3`} {
		c, fabric, opened := dialOpening(t, "mem:"+fabrictest.Name(t))
		text := `{"version":9,"job":"j",` + more + `}`
		_, err := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
		require.NoError(t, err)
		h, err := readHello(c)
		require.NoError(t, err)
		want := fmt.Sprintf("version %d here, 9 there", activemsg.Version)
		require.Equal(t, activemsg.Version, h.Version)
		require.Contains(t, h.Refused, want)
		require.ErrorContains(t, <-opened, want)
		c.Close()
		fabric.Close()
	}
}

// A PE without membarrier tells the others. They then fence after each store.
func TestPEsWithoutMembarrierTellOthers(t *testing.T) {
	var all [2]*World
	for pe := range all {
		w, err := newWorld(t.Context(), options{Options: Options{PE: pe, N: 2, Heap: 1 << 20}, inProcess: true})
		require.NoError(t, err)
		defer w.heap.Close()
		defer symheap.ForgetGo(w.token)
		w.spec, err = spec.Parse("mem:x")
		require.NoError(t, err)
		if w.fence {
			t.Skip("there is no membarrier")
		}
		if pe == 1 {
			w.fence = true
			w.peers[0].SetFence()
		}
		all[pe] = w
	}
	require.NoError(t, all[0].mapPeer(context.Background(), all[0].peers[1], all[1].hello()))
	require.True(t, all[0].peers[1].Fenced())
	require.NoError(t, all[1].mapPeer(context.Background(), all[1].peers[0], all[0].hello()))
	require.True(t, all[1].peers[0].Fenced())
	require.False(t, all[0].peers[0].Fenced())
}

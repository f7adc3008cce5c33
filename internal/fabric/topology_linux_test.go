//go:build amd64 || arm64

package fabric

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/census"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/stretchr/testify/require"
)

func TestTopologyIsWhatTheNodesThatRunTell(t *testing.T) {
	name := ownName(t)
	_, err := census.ReadTopology(t.Context(), "ring:"+name+"?nodes=99")
	require.ErrorIs(t, err, syscall.EHOSTUNREACH)
	plan := "ring:" + name + "?nodes=4"
	a, b, d := mustNode(t, "shm", plan, 1), mustNode(t, "shm", plan, 2), mustNode(t, "shm", plan, 4)
	for _, f := range []*Fabric{b, d} {
		_, err := a.Peer(t.Context(), f.Node().ID(), nil)
		require.NoError(t, err)
		_, err = f.Peer(t.Context(), a.Node().ID(), nil)
		require.NoError(t, err)
	}
	var top *status.Fabric
	require.Eventually(t, func() bool { // a process that has no processor is silent for now
		top, err = census.ReadTopology(t.Context(), "ring:"+name+"?nodes=99")
		return err == nil && len(top.Silent) == 0
	}, testTimeout, time.Millisecond)
	require.Equal(t, "ring:"+name, top.Fabric)
	require.Equal(t, []int{3}, top.Absent)
	require.Len(t, top.Views, 3)
	var states []string
	for _, w := range top.Wires {
		states = append(states, fmt.Sprintf("%d-%d %s", w.From, w.To, w.State))
	}
	require.Equal(t, []string{"1-2 up", "2-3 absent", "3-4 absent", "4-1 up"}, states)
	require.Equal(t, "right", top.Views[0].Links[0].Direction)
	require.Equal(t, "left", top.Views[0].Links[1].Direction)

	// It is the same as JSON.
	text, err := json.Marshal(top)
	require.NoError(t, err)
	var again status.Fabric
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, top.Wires, again.Wires)
	require.Equal(t, top.Views, again.Views)
}

// A process that comes while its empty directory is removed is not left alone in it.
func TestAFabricIsOpenedWhileItIsRemoved(t *testing.T) {
	own, err := spec.Parse("shm:test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(uint64(rand.Uint32()), 16))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, spec.Remove(own.Name)) })
	for range 200 {
		require.NoError(t, spec.Remove(own.Name))
		dir, err := hostdir.Open(own.Place(), true) // so that there is something to remove
		require.NoError(t, err)
		require.NoError(t, dir.Close())
		removed := make(chan error, 1)
		go func() {
			_, err := census.RemoveDead("shm:" + own.Name)
			removed <- err
		}()
		s, err := openShmRegistry(own)
		require.NoError(t, err)
		require.NoError(t, <-removed)
		dir, err = hostdir.Open(own.Place(), false)
		require.NoError(t, err)
		all, err := dir.Processes()
		require.NoError(t, err)
		require.Equal(t, []int{s.process()}, all)
		require.NoError(t, dir.Close())
		s.close()
	}
}

package sdp

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
)

// A fabric of devices that a program has supplied, and whose directory was removed, is not opened
// again without the devices.
func TestALostFabricIsNotOpenedWithoutItsDevices(t *testing.T) {
	leak.Check(t)
	name := fabrictest.Name(t)
	spec := "shm:" + name
	same := func(a, b ntb.Device) (ntb.Device, ntb.Device) { return a, b }
	f, err := OpenWith(spec, Devices{Wrap: same})
	require.NoError(t, err)
	ln, err := f.Listen("sdp", ":0")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(hostdir.Find(name), name)))
	require.NoError(t, ln.(*Listener).SetDeadline(time.Now().Add(time.Minute)))
	_, err = ln.Accept()
	require.ErrorIs(t, err, syscall.ESTALE)

	without, err := Open(spec)
	if err == nil {
		without.Close()
	}
	require.ErrorIs(t, err, syscall.ESTALE)
	require.NoError(t, ln.Close())
	require.NoError(t, f.Close())
	f, err = OpenWith(spec, Devices{Wrap: same})
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

//go:build amd64 || arm64

package ntbkernel

import (
	"errors"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// bridgeEnds returns the two ends of a bridge, which are in one machine.
func bridgeEnds(t *testing.T) (a, b ntb.Attachment) {
	t.Helper()
	var attached [2]ntb.Attachment
	for i, address := range bridgeAddresses(t) {
		a, err := Attach(address, Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, a.Close()) })
		attached[i] = a
	}
	return attached[0], attached[1]
}

func TestConformanceOfBridges(t *testing.T) {
	// The suite opens pairs while earlier ones are open, and only one process, once, can have a bridge.
	a, b := bridgeEnds(t)
	x, y := open(t, a, b) // those who wait for doorbells stay until Close of the ends
	require.NoError(t, errors.Join(x.Close(), y.Close()))
	ntbtest.Run(t, func(t *testing.T) (ntb.Device, ntb.Device) { return open(t, a, b) })
}

func TestSessionsOfBridges(t *testing.T) { ntbtest.RunAttachments(t, bridgeEnds) }

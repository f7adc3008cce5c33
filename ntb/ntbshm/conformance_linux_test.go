//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
)

func TestConformance(t *testing.T) {
	ntbtest.Run(t, func(t *testing.T) (a, b ntb.Device) { return pair(t, Options{Window: 1 << 20}) })
}

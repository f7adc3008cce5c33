//go:build !(linux && (amd64 || arm64))

package fabric

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

func openShmRegistry(*spec.Spec) (registry, error) { return nil, ntb.ErrNotSupported }

func shmConnect(context.Context, *spec.Spec, int, int) (cable, error) {
	return nil, ntb.ErrNotSupported
}

func connectIn(context.Context, *hostdir.Dir, int, int) (cable, error) {
	return nil, ntb.ErrNotSupported
}

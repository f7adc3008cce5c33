//go:build !(linux && (amd64 || arm64))

package fabric

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/ntb"
)

func openShmRegistry(*Spec) (registry, error) { return nil, ntb.ErrNotSupported }

func shmConnect(context.Context, *Spec, int, int) (cable, error) { return nil, ntb.ErrNotSupported }

func connectIn(context.Context, *hostdir.Dir, int, int) (cable, error) {
	return nil, ntb.ErrNotSupported
}

func shmProcesses(*Spec, int) int { return 0 }

func shmPresent(*Spec, int) (bool, error) { return false, ntb.ErrNotSupported }

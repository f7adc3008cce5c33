//go:build !(linux && (amd64 || arm64))

package heapmem

import (
	"context"
	"os"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// Lend returns ntb.ErrNotSupported.
func Lend(uint64, int) (end func(), err error) { return nil, ntb.ErrNotSupported }

// Fetch returns ntb.ErrNotSupported.
func Fetch(context.Context, *spec.Spec, int, int, uint64) (*os.File, error) {
	return nil, ntb.ErrNotSupported
}

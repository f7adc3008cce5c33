//go:build !(linux && (amd64 || arm64))

package fabric

import (
	"context"
	"os"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// LendFile returns ntb.ErrNotSupported.
func LendFile(uint64, int) (end func(), err error) { return nil, ntb.ErrNotSupported }

// FetchFile returns ntb.ErrNotSupported.
func FetchFile(context.Context, *spec.Spec, int, int, uint64) (*os.File, error) {
	return nil, ntb.ErrNotSupported
}

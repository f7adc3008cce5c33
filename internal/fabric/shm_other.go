//go:build !(linux && (amd64 || arm64))

package fabric

import "github.com/ntbnet/ntbnet/ntb"

func openShm(*Spec) (network, error) { return nil, ntb.ErrNotSupported }

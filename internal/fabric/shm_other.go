//go:build !(linux && (amd64 || arm64))

package fabric

import "github.com/ntbnet/ntbnet/ntb"

func openShm(string, int) (network, error) { return nil, ntb.ErrNotSupported }

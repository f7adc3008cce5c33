//go:build !(linux && (amd64 || arm64))

package ntbfixed

import (
	"context"

	"github.com/ntbnet/ntbnet/ntb"
)

// Attach needs Linux on amd64 or arm64.
func Attach(Config) (ntb.Attachment, error) { return nil, ntb.ErrNotSupported }

// Reattach needs Linux on amd64 or arm64.
func Reattach(func(context.Context) (Attached, error)) ntb.Attachment { panic(ntb.ErrNotSupported) }

//go:build !(linux && (amd64 || arm64))

package ntbkernel

import (
	"context"

	"github.com/ntbnet/ntbnet/ntb"
)

// Attachment needs Linux on amd64 or arm64.
type Attachment struct{ ntb.Attachment }

// Attach needs Linux on amd64 or arm64.
func Attach(string, Options) (*Attachment, error) { return nil, ntb.ErrNotSupported }

// Why needs Linux on amd64 or arm64.
func (*Attachment) Why() error { return ntb.ErrNotSupported }

// Node needs Linux on amd64 or arm64.
func (*Attachment) Node(context.Context) (int, error) { return 0, ntb.ErrNotSupported }

// Find needs Linux on amd64 or arm64.
func Find() (string, error) { return "", ntb.ErrNotSupported }

// Bridges needs Linux on amd64 or arm64.
func Bridges() ([]Bridge, error) { return nil, ntb.ErrNotSupported }

// Check needs Linux on amd64 or arm64.
func Check(string, Options) (int, error) { return 0, ntb.ErrNotSupported }

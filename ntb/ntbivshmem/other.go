//go:build !(linux && (amd64 || arm64))

package ntbivshmem

import (
	"context"
	"os"

	"github.com/ntbnet/ntbnet/ntb"
)

// AttachSocket needs Linux on amd64 or arm64.
func AttachSocket(string, Place) (ntb.Attachment, error) { return nil, ntb.ErrNotSupported }

// AttachFile needs Linux on amd64 or arm64.
func AttachFile(string, Place) (ntb.Attachment, error) { return nil, ntb.ErrNotSupported }

// AttachFunction needs Linux on amd64 or arm64.
func AttachFunction(string, Place) (ntb.Attachment, error) { return nil, ntb.ErrNotSupported }

// AttachResources needs Linux on amd64 or arm64.
func AttachResources(string, Place) (ntb.Attachment, error) { return nil, ntb.ErrNotSupported }

// CheckFile needs Linux on amd64 or arm64.
func CheckFile(string, Place) (int, error) { return 0, ntb.ErrNotSupported }

// CheckSocket needs Linux on amd64 or arm64.
func CheckSocket(context.Context, string, Place) (int, error) { return 0, ntb.ErrNotSupported }

// CheckFunction needs Linux on amd64 or arm64.
func CheckFunction(string) error { return ntb.ErrNotSupported }

// OpenMemory needs Linux on amd64 or arm64.
func OpenMemory(context.Context, string, bool) (*os.File, int64, error) {
	return nil, 0, ntb.ErrNotSupported
}

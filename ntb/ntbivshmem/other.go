//go:build !(linux && (amd64 || arm64))

package ntbivshmem

import "github.com/ntbnet/ntbnet/ntb"

// AttachSocket needs Linux on amd64 or arm64.
func AttachSocket(string, Place) (ntb.Attachment, error) { return nil, ntb.ErrNotSupported }

// AttachFile needs Linux on amd64 or arm64.
func AttachFile(string, Place) (ntb.Attachment, error) { return nil, ntb.ErrNotSupported }

// AttachFunction needs Linux on amd64 or arm64.
func AttachFunction(string, Place) (ntb.Attachment, error) { return nil, ntb.ErrNotSupported }

// AttachResources needs Linux on amd64 or arm64.
func AttachResources(string, Place) (ntb.Attachment, error) { return nil, ntb.ErrNotSupported }

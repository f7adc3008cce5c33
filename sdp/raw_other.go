//go:build !linux

package sdp

import "errors"

// descriptors reports whether connections can have a descriptor.
const descriptors = false

type descriptor struct{}

func (*descriptor) close() {}

func (*endpoint) control(func(uintptr)) error      { return errors.ErrUnsupported }
func (*endpoint) rawRead(func(uintptr) bool) error { return errors.ErrUnsupported }

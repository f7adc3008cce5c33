//go:build !linux

package perf

import "errors"

// Calls is not available.
type Calls struct{}

// CountCalls returns errors.ErrUnsupported.
func CountCalls(...int) (*Calls, error) { return nil, errors.ErrUnsupported }

// Each returns nothing.
func (c *Calls) Each() ([]uint64, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (c *Calls) Close() {}

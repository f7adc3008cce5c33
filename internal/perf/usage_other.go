//go:build !linux

package perf

import "errors"

func memory() (uint64, error) { return 0, errors.ErrUnsupported }

func cpu() (uint64, error) { return 0, errors.ErrUnsupported }

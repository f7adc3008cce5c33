//go:build !linux

package perf

import (
	"errors"
	"time"
)

func memory() (uint64, error) { return 0, errors.ErrUnsupported }

func cpu() (uint64, error) { return 0, errors.ErrUnsupported }

// ProcessCPU returns errors.ErrUnsupported.
func ProcessCPU(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// ProcessSleeps returns errors.ErrUnsupported.
func ProcessSleeps(int) (uint64, error) { return 0, errors.ErrUnsupported }

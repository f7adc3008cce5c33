//go:build !linux

package perf

import (
	"errors"
	"time"
)

func memory() (uint64, error) { return 0, errors.ErrUnsupported }

func cpu() (uint64, error) { return 0, errors.ErrUnsupported }

// ProcessCPU is how long a process has run on all processors.
func ProcessCPU(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

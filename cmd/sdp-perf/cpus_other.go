//go:build !linux

package main

import "errors"

func usableCPUs() ([]int, error) { return nil, errors.ErrUnsupported }

func startOn([]int) error { return errors.ErrUnsupported }

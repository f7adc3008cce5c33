//go:build !linux

package main

import "log"

func runJob(_ options, logger *log.Logger) int {
	logger.Print("not supported on this system")
	return statusCannot
}

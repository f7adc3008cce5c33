//go:build unix && !linux

package main

import "syscall"

// processAttributes gives a PE its own group. This system has no way to kill it
// when shmemrun is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

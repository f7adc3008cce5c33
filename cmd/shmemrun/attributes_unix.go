//go:build unix && !linux

package main

import "syscall"

// processAttributes puts a PE into a process group of its own. This system has no
// way to kill it when shmemrun is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

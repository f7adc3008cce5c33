//go:build unix && !linux

package main

import "syscall"

// cpus are the CPUs of a core. This system has no way to bind a process to them.
type cpus struct{}

func cores() []cpus { return nil }

func (*cpus) bind() (undo func()) { return func() {} }

// processAttributes puts a PE into a process group of its own. This system has no
// way to kill it when shmemrun is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

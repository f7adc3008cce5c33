package main

import "syscall"

// processAttributes puts a PE into a process group of its own. It makes the kernel
// kill the PE when the thread that starts it ends.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

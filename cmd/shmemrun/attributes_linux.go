package main

import "syscall"

// processAttributes gives a PE its own group, and has it killed when the thread
// ends that starts it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

//go:build !unix

package main

import "syscall"

var ownSession *syscall.SysProcAttr

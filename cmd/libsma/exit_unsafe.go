//go:build libsma && cgo && linux

package main

/*
#include "sma.h"
#include <stdio.h>
#include <unistd.h>
*/
import "C"

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// rescue is deferred by each function that C calls. It makes a panic, which is about an
// argument, one line and the end of the job.
func rescue(name C.sma_name) {
	if r := recover(); r != nil {
		failf(name, "%v", r)
	}
}

// must ends the job if a call has failed. Then it does not return.
func must(name C.sma_name, err error) {
	if err != nil {
		failf(name, "%v", err)
	}
}

// failf ends the job because a call has failed. It does not return.
func failf(name C.sma_name, format string, args ...any) {
	if !first() {
		select {} // the process ends
	}
	say(C.GoString(name), fmt.Errorf(format, args...))
	if lib.w != nil && lib.w.Err() != nil {
		leave()
	}
	end(1)
}

// leave ends this process because another PE has ended. The others notice that too, and say so, if they learn of it
// before this PE is gone.
func leave() {
	time.Sleep(leaveGrace)
	exit(1)
}

// first reports whether it is called for the first time: a process ends for one reason only,
// though several threads may notice it.
func first() bool { return failed.CompareAndSwap(false, true) }

var failed atomic.Bool

// say prints one line about a call.
func say(name string, err error) {
	who := ""
	if C.sma.npes > 0 {
		who = fmt.Sprintf("PE %d: ", C.sma.pe)
	}
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "shmem: "), "\n", "; ")
	fmt.Fprintf(os.Stderr, "libsma: %s%s: %s\n", who, name, text)
}

// end ends the job: the processes of all PEs exit with status. It does not return.
func end(status int) {
	if lib.w != nil && !lib.closing.Load() {
		lib.w.GlobalExit(status)
	}
	exit(status)
}

// exit ends this process, after it has written what the program has printed.
func exit(status int) {
	flush()
	C._exit(C.int(status))
}

const (
	leaveGrace = 100 * time.Millisecond
	flushLimit = time.Second
)

// flush writes what the program has printed. A thread of it may have a stream locked, so that
// takes no longer than flushLimit.
func flush() {
	done := make(chan struct{})
	go func() {
		C.fflush(nil)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(flushLimit):
	}
}

//export smaEnd
func smaEnd(status C.int) { end(int(status) & 0xff) }

// smaLeave follows an exit of the program before shmem_finalize, with another status than 0.
//
//export smaLeave
func smaLeave(status C.int) {
	say("exit", fmt.Errorf("status %d before shmem_finalize", status&0xff))
	end(int(status) & 0xff)
}

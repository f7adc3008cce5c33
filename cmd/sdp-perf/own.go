package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/ntb"
)

// freshName returns the name of a fabric of some kind that no other process uses. So
// two runs have nothing in common. The caller removes the fabric.
func freshName(kind string) string {
	return fmt.Sprintf("%s:perf-%d-%08x", kind, os.Getpid(), rand.Uint32())
}

// removeFabric removes what a fabric of freshName has left in the file system. Its
// processes have ended or are about to: a child whose parent was killed ends when it
// notices.
func removeFabric(name string) error {
	for end := time.Now().Add(childStop); ; time.Sleep(time.Millisecond) {
		err := tryRemoveFabric(name)
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

// tryRemoveFabric removes the fabric without waiting.
func tryRemoveFabric(name string) error {
	_, name, _ = strings.Cut(name, ":")
	name, _, _ = strings.Cut(name, "?")
	if err := fabric.Remove(name); !errors.Is(err, ntb.ErrNotSupported) {
		return err
	}
	return nil
}

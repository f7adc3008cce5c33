//go:build linux

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// refuses says what a program is whose loader takes no library from the environment, or returns "".
func refuses(path string) string {
	var at unix.Stat_t
	if unix.Stat(path, &at) != nil {
		return ""
	}
	switch {
	case at.Mode&syscall.S_ISUID != 0 && int(at.Uid) != os.Getuid():
		return "set-user-ID"
	case at.Mode&syscall.S_ISGID != 0 && int(at.Gid) != os.Getgid():
		return "set-group-ID"
	}
	if n, err := unix.Getxattr(path, "security.capability", nil); err == nil && n > 0 && os.Getuid() != 0 {
		return "one with capabilities"
	}
	if with := interpreter(path); with != "" {
		return refuses(with)
	}
	if f, err := elf.Open(path); err == nil {
		defer f.Close()
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				return ""
			}
		}
		return "static"
	}
	return ""
}

// interpreter returns the program that runs a script, or "".
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	words := strings.Fields(string(bytes.TrimPrefix(line, []byte("#!"))))
	if !bytes.HasPrefix(line, []byte("#!")) || len(words) == 0 {
		return ""
	}
	if strings.HasSuffix(words[0], "/env") && len(words) > 1 {
		words[0], _ = exec.LookPath(words[1])
	}
	return words[0]
}

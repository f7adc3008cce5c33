package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
)

// eraseLine moves to the first column and erases to the end of the line.
const eraseLine = "\r\x1b[K"

// onTerminal returns w if it is a terminal, and else a writer that discards.
func onTerminal(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return w
		}
	}
	return io.Discard
}

// pci returns vendor and device of an end's PCI function, as in "0x8086 0x347e", or "".
func pci(end string) string {
	_, address, _ := strings.Cut(end, ":")
	var ids []string
	for _, name := range []string{"vendor", "device"} {
		text, err := os.ReadFile(filepath.Join("/sys/bus/pci/devices", filepath.Base(address), name))
		if err != nil {
			return ""
		}
		ids = append(ids, strings.TrimSpace(string(text)))
	}
	return strings.Join(ids, " ")
}

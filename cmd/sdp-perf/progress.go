package main

import (
	"fmt"
	"os"
)

// progress is a line that is rewritten again and again, on a terminal only.
type progress struct {
	f *os.File // nil if nothing is to be written
}

func newProgress(f *os.File) progress {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return progress{}
	}
	return progress{f}
}

// eraseLine moves to the first column and erases to the end of the line.
const eraseLine = "\r\x1b[K"

func (p progress) show(what string) {
	if p.f != nil {
		fmt.Fprint(p.f, eraseLine+what)
	}
}

func (p progress) clear() { p.show("") }

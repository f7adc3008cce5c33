package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: generate DIR")
	}
	for name, text := range files() {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

const generated = "/* Generated from the table of internal/libsma/generate. */\n\n"

// files returns the text of each generated file, by its name in cmd/libsma.
func files() map[string]string {
	fs := functions()
	return map[string]string{
		"include/shmem.h":  header(fs),
		"include/pshmem.h": profilingHeader(fs),
		"include/shmemx.h": extensions(fs),
		"functions.c":      bodies(fs),
	}
}

// bodies returns the definitions of all functions.
func bodies(fs []function) string {
	text := "//go:build libsma && cgo && linux\n\n" + generated + "#include \"sma.h\"\n#include \"_cgo_export.h\"\n\n"
	for _, f := range fs {
		if name, ok := f.bare(); ok {
			text += fmt.Sprintf("SMA_FN(%s, %s, (%s)) { %s; }\n", f.ret, name, f.params, f.body)
		} else {
			text += fmt.Sprintf("%s%s(%s) { %s; }\n", space(f.ret), f.name, f.params, f.body)
		}
	}
	return text
}

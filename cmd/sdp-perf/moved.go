package main

import "slices"

// moved returns an error if the command of that name is one of ntbnet.
func moved(name string) error {
	if !slices.Contains([]string{"topology", "doctor", "ls"}, name) {
		return nil
	}
	return badInputf("%s is a command of ntbnet: ntbnet %[1]s (go build -o bin/ ./cmd/ntbnet builds it)", name)
}

package flags

import (
	"fmt"
	"io"
	"os"
)

// ReadFile returns the text of a file that a flag names, of a megabyte at most.
func ReadFile(path string) (string, error) {
	const most = 1 << 20
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: has more than %d bytes", path, most)
	}
	return string(text), err
}

//go:build linux && (amd64 || arm64)

package ntbivshmem

import "context"

// CheckFile returns the error with which the end of a place would not be attached to a file as it is now.
// Without an error it returns how large the windows of a session are. It opens none, and changes nothing.
func CheckFile(path string, place Place) (window int, err error) {
	a, err := attachFile(path, place)
	if err != nil {
		return 0, err
	}
	return a.Window, a.Close()
}

// CheckSocket is [CheckFile] for the memory of a server, whose client this process is meanwhile.
func CheckSocket(ctx context.Context, path string, place Place) (window int, err error) {
	a, err := connect(ctx, path, place)
	if err != nil {
		return 0, err
	}
	return a.Window, a.Close()
}

// CheckFunction returns an error unless there is an ivshmem function of that address. It does not use it.
func CheckFunction(address string) error {
	_, err := findFunction(address)
	return err
}

//go:build linux && (amd64 || arm64)

package ntbivshmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/ivshmem"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
)

// OpenMemory opens the memory of an end of processes of this machine, for what lies there besides windows: a file,
// or the memory of the server whose socket the target is. The descriptor shares nothing with those of others, so
// locks of it are this process' own. size is that of the memory.
func OpenMemory(ctx context.Context, target string, server bool) (f *os.File, size int64, err error) {
	name := target
	if server {
		client, err := ivshmem.Dial(ctx, target)
		if err != nil {
			return nil, 0, err
		}
		defer client.Close()
		memory, _ := client.Memory()
		name = fmt.Sprintf("/proc/self/fd/%d", memory.Fd())
	}
	if f, err = os.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK, 0); err != nil {
		return nil, 0, fmt.Errorf("ntbivshmem: %w", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file: %w", target, syscall.EINVAL)
	}
	page := 0
	if err == nil {
		page, err = pageOf(f)
	}
	if err == nil && page != ntbfixed.PageSize {
		err = fmt.Errorf("%s has pages of %d bytes, want %d for heaps: %w", target, page, ntbfixed.PageSize, syscall.EINVAL)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("ntbivshmem: %w", err), f.Close())
	}
	return f, st.Size(), nil
}

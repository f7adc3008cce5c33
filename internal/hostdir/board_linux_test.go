package hostdir

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func openTestBoard(t *testing.T, base string) *Board {
	t.Helper()
	b, err := OpenBoard(In(base, "mine"), true)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

func postText(t *testing.T, b *Board, text string) (earlier []string) {
	t.Helper()
	texts, err := b.Post(context.Background(), []byte(text))
	require.NoError(t, err)
	for _, t := range texts {
		earlier = append(earlier, string(t))
	}
	return earlier
}

func TestBoardHasTheTextsOfThoseThatAreThere(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	first, second, third := openTestBoard(t, base), openTestBoard(t, base), openTestBoard(t, base)
	long := strings.Repeat("long ", 100_000)
	assert.Empty(t, postText(t, first, long))
	assert.Equal(t, []string{long}, postText(t, second, ""))
	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	assert.Equal(t, []string{""}, postText(t, third, "short")) // where the long text was
	assert.Equal(t, []string{"short", ""}, postText(t, openTestBoard(t, base), "fourth"))
	_, err := third.Post(context.Background(), nil)
	assert.ErrorIs(t, err, os.ErrExist)
	_, err = openTestBoard(t, base).Post(context.Background(), make([]byte, maxPost+1))
	assert.ErrorIs(t, err, syscall.EMSGSIZE)
}

// A process' text ends with the process, however that ends.
func TestTextEndsWithItsProcess(t *testing.T) {
	base := newBase(t)
	p := start(t, self(t), "post", base, nil)
	require.Equal(t, "posted", p.line(t))
	assert.Equal(t, []string{"another process"}, postText(t, openTestBoard(t, base), "x"))
	p.kill()
	assert.Equal(t, []string{"x"}, postText(t, openTestBoard(t, base), "y"))
}

func TestPostDoesNotWaitForEverForAStoppedProcess(t *testing.T) {
	base := newBase(t)
	stopped, b := openTestBoard(t, base), openTestBoard(t, base)
	require.NoError(t, flock(int(stopped.file.Fd()), unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := b.Post(ctx, nil)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, flock(int(stopped.file.Fd()), unix.LOCK_UN))
	assert.Empty(t, postText(t, b, "x"))
}

func TestBoardThatIsNotOursIsRefused(t *testing.T) {
	base := newBase(t)
	require.NoError(t, os.MkdirAll(filepath.Join(base, "mine"), 0o700))
	require.NoError(t, os.Chmod(base, 0o700))
	path := filepath.Join(base, "mine", boardFile)
	require.NoError(t, os.Symlink("elsewhere", path))
	_, err := OpenBoard(In(base, "mine"), true)
	assert.ErrorIs(t, err, syscall.EPERM)
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err = OpenBoard(In(base, "mine"), true)
	assert.ErrorIs(t, err, syscall.EPERM)
}

func TestBoardWithABadLengthIsAnError(t *testing.T) {
	base := newBase(t)
	bad := openTestBoard(t, base)
	postText(t, bad, "x")
	_, err := bad.file.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, 0)
	require.NoError(t, err)
	_, err = openTestBoard(t, base).Post(context.Background(), nil)
	assert.ErrorIs(t, err, syscall.EPROTO)
}

func TestRemoveLeavesNothingOfABoard(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	b := openTestBoard(t, base)
	d, err := Open(In(base, "mine@2"), true)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	postText(t, b, "x")
	assert.ErrorIs(t, Remove(inAll(base)...), syscall.EBUSY)
	require.NoError(t, b.Close())
	require.NoError(t, Remove(inAll(base)...))
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	assert.Empty(t, entries)
}
